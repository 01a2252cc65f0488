import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * java Load BOOTSTRAP TOPIC PARTITIONS EVENTS: produces with acks=all and idempotence, and consumes, until a line comes
 * on stdin; then waits for every answer. What happened is in EVENTS, one line each, with the nanoseconds of the
 * system's monotonic clock: S partition value, A partition offset value, G partition error, R partition offset value.
 */
public final class Load {
    private static final int OUTSTANDING_MAX = 200;
    private static final long PACE_MS = 4;

    private final String bootstrap;
    private final String topic;
    private final int partitions;
    private final PrintWriter events;
    private volatile boolean over;
    private volatile boolean produced;
    private int outstanding;

    private Load(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        events = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[3]), StandardCharsets.ISO_8859_1));
    }

    public static void main(String[] arguments) throws Exception {
        Load load = new Load(arguments);
        Thread consuming = new Thread(load::consume);
        Thread producing = new Thread(load::produce);
        consuming.start();
        producing.start();
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
        load.over = true;
        producing.join();
        load.produced = true;
        consuming.join();
        load.events.close();
    }

    private synchronized void tell(Object... words) {
        StringBuilder line = new StringBuilder().append(System.nanoTime());
        for (Object word : words) {
            line.append('\t').append(word);
        }
        events.println(line);
    }

    private synchronized void add(int change) {
        outstanding += change;
    }

    private synchronized boolean isFull() {
        return outstanding >= OUTSTANDING_MAX;
    }

    private void produce() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "2");
        settings.put("request.timeout.ms", "5000");
        settings.put("delivery.timeout.ms", "180000");
        settings.put("max.block.ms", "180000");
        settings.put("reconnect.backoff.max.ms", "200");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int number = 0; !over; number++) {
                int partition = number % partitions;
                String value = "java-" + number;
                tell("S", partition, value);
                add(1);
                producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.ISO_8859_1)),
                    (stored, error) -> {
                        if (error == null) {
                            tell("A", partition, stored.offset(), value);
                        } else {
                            tell("G", partition, value, error);
                        }
                        add(-1);
                    });
                pause(PACE_MS);
                while (isFull() && !over) {
                    pause(PACE_MS);
                }
            }
        }
    }

    private void consume() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        settings.put("request.timeout.ms", "5000");
        settings.put("reconnect.backoff.max.ms", "200");
        List<TopicPartition> all = IntStream.range(0, partitions)
            .mapToObj(index -> new TopicPartition(topic, index))
            .collect(Collectors.toList());
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            all.forEach(partition -> consumer.seek(partition, 0));
            while (!produced) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        tell("R", record.partition(), record.offset(),
                            new String(record.value(), StandardCharsets.ISO_8859_1));
                    }
                } catch (RetriableException error) {
                    error.printStackTrace();
                }
            }
        } catch (RuntimeException error) {
            error.printStackTrace();
            tell("E", error.toString().replaceAll("\\s", " "));
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
