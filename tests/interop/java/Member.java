import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group by the Java client: Member BOOTSTRAP GROUP TOPIC ASSIGNOR, until standard input ends. */
public class Member {
  private static final TreeSet<Integer> held = new TreeSet<>();

  public static void main(String[] words) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", words[0]);
    settings.put("group.id", words[1]);
    settings.put("client.id", "java");
    settings.put("auto.offset.reset", "earliest");
    settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + words[3]);
    settings.put("session.timeout.ms", "6000");
    settings.put("heartbeat.interval.ms", "1000");
    settings.put("auto.commit.interval.ms", "500");
    try (var consumer =
        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(words[2]), new Listener());
      while (!ended()) {
        var values = new java.util.ArrayList<String>();
        consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
        if (!values.isEmpty()) {
          tell("{\"read\": [" + String.join(", ", values) + "]}");
        }
      }
    }
  }

  /** Nobody writes to standard input: what can be read from it is its end. */
  private static boolean ended() {
    return !waiting.isAlive();
  }

  private static final Thread waiting =
      new Thread(
          () -> {
            try {
              while (System.in.read() >= 0) {}
            } catch (java.io.IOException lost) {
              return;
            }
          });

  static {
    waiting.setDaemon(true);
    waiting.start();
  }

  private static synchronized void tell(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static void tellHeld() {
    tell("{\"assigned\": [" + held.stream().map(String::valueOf).collect(Collectors.joining(", ")) + "]}");
  }

  private static final class Listener implements ConsumerRebalanceListener {
    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      partitions.forEach(partition -> held.add(partition.partition()));
      tellHeld();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      partitions.forEach(partition -> held.remove(partition.partition()));
      tellHeld();
    }
  }
}
