import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * java Whole BOOTSTRAP TOPIC: for each line N on stdin reads partition 0 from offset 0 to N, and then says so by N.
 * Every record must have the next offset, and begin with it. Anything else is an exception.
 */
public final class Whole {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("request.timeout.ms", "5000");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.max.ms", "200");
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            for (String line = asked.readLine(); line != null; line = asked.readLine()) {
                consumer.seek(partition, 0);
                read(consumer, Long.parseLong(line));
                System.out.println(line);
            }
        }
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, long end) {
        long next = 0;
        while (next < end) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    String begin = next + " ";
                    String value = new String(record.value(), StandardCharsets.ISO_8859_1);
                    if (record.offset() != next || !value.startsWith(begin)) {
                        throw new IllegalStateException("after " + next + " came " + record.offset());
                    }
                    next++;
                }
            } catch (RetriableException error) {
                error.printStackTrace();
            }
        }
    }
}
