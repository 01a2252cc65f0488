import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes, or reads, partition 0 until a file appears, or an error; the names of the errors are kept. */
final class Owning {
    private static final int OUTSTANDING_MAX = 1_000;

    private final String bootstrap;
    private final Set<String> told = new ConcurrentSkipListSet<>();

    Owning(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    String write(String topic, String clientId, String acks, String prefix, Path out, Path end) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", clientId);
        settings.put("acks", acks);
        settings.put("enable.idempotence", String.valueOf(acks.equals("all")));
        settings.put("max.in.flight.requests.per.connection", acks.equals("all") ? "5" : "1000");
        settings.put("batch.size", "0");
        settings.put("linger.ms", "0");
        settings.put("delivery.timeout.ms", "30000");
        settings.put("request.timeout.ms", "20000");
        Semaphore room = new Semaphore(OUTSTANDING_MAX);
        int sent = 0;
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        while (told.isEmpty() && !Files.exists(end)) {
            if (!room.tryAcquire()) {
                Thread.sleep(1);
                continue;
            }
            byte[] value = (prefix + " " + sent).getBytes(StandardCharsets.UTF_8);
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    room.release();
                    if (error != null) {
                        told.add(error.getClass().getSimpleName());
                    }
                });
                sent++;
            } catch (ApiException error) {
                told.add(error.getClass().getSimpleName());
            }
        }
        waitFor(out, end);
        producer.close(Duration.ofSeconds(5));
        Files.writeString(out, sent + "\n" + String.join("\n", told));
        return "";
    }

    String read(String topic, String clientId, Path out, Path end) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", clientId);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        Deque<String> values = new ArrayDeque<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            while (told.isEmpty() && !Files.exists(end)) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        values.add(new String(record.value(), StandardCharsets.UTF_8));
                    }
                } catch (ApiException error) {
                    told.add(error.getClass().getSimpleName());
                }
            }
            waitFor(out, end);
        }
        Files.writeString(out, String.join("\n", told) + "\n\n" + String.join("\n", values));
        return "";
    }

    /** Says beside the file for the results that there was an error. */
    private void waitFor(Path out, Path end) throws Exception {
        if (!told.isEmpty()) {
            String name = out.getFileName().toString();
            Files.writeString(out.resolveSibling(name.substring(0, name.lastIndexOf('.')) + ".told"), "");
        }
        while (!Files.exists(end)) {
            Thread.sleep(5);
        }
    }
}
