import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions by the Java client: Transactor BOOTSTRAP TRANSACTIONAL_ID TOPIC COUNT. */
public class Transactor {
  private static final int PARTITIONS = 3;

  public static void main(String[] words) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", words[0]);
    settings.put("transactional.id", words[1]);
    try (var producer =
        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      for (int number = 0; number < Integer.parseInt(words[3]); number++) {
        for (int tried = 0; !attempt(producer, words[1], words[2], number, tried); tried++) {}
      }
    }
  }

  private static boolean attempt(
      KafkaProducer<String, String> producer, String id, String topic, int number, int tried) {
    boolean aborted = number % 3 == 2;
    producer.beginTransaction();
    try {
      for (int partition = 0; partition < PARTITIONS; partition++) {
        String value = id + " " + number + " " + tried + " " + partition;
        producer.send(new ProducerRecord<>(topic, partition, null, value));
      }
      producer.sendOffsetsToTransaction(
          Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number + 1)),
          new ConsumerGroupMetadata("offsets-of-" + id));
      if (aborted) {
        producer.abortTransaction();
      } else {
        producer.commitTransaction();
      }
    } catch (ProducerFencedException fenced) {
      throw fenced;
    } catch (KafkaException failure) {
      System.err.println(number + ": " + failure);
      producer.abortTransaction();
      tell("aborted", number, tried);
      return false;
    }
    tell(aborted ? "aborted" : "committed", number, tried);
    return true;
  }

  private static void tell(String outcome, int number, int tried) {
    System.out.println("{\"outcome\": \"" + outcome + "\", \"number\": " + number + ", \"tried\": " + tried + "}");
    System.out.flush();
  }
}
