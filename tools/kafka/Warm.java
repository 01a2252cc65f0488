import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Loads what clients need to begin with, for Java to keep it: nobody listens where they look for a broker. */
class Warm {
    static final String NOWHERE = "127.0.0.1:1";

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> producing = Map.of("bootstrap.servers", NOWHERE, "max.block.ms", 300);
        try (var producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>("t", new byte[1]));
        } catch (KafkaException expected) {
            System.out.println(expected);
        }
        Map<String, Object> consuming = Map.of("bootstrap.servers", NOWHERE, "group.id", "g");
        try (var consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("t"));
            consumer.poll(Duration.ofMillis(300));
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", NOWHERE, "default.api.timeout.ms", 400,
                "request.timeout.ms", 300))) {
            admin.listTopics().names().get();
        } catch (java.util.concurrent.ExecutionException expected) {
            System.out.println(expected);
        }
    }
}
