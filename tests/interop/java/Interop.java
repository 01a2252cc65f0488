import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client as a line program: java Interop BOOTSTRAP, then tab-separated commands on stdin. */
public final class Interop {
    static final Duration POLL = Duration.ofMillis(500);
    static final long GIVE_UP_MS = 120_000;

    private final String bootstrap;

    private Interop(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Interop interop = new Interop(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println("ok\t" + interop.run(line.split("\t")));
            } catch (Exception error) {
                error.printStackTrace();
                System.out.println("error\t" + String.valueOf(error).replaceAll("\\s", " "));
            }
        }
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "produce":
                return produce(words[1], Integer.parseInt(words[2]), Path.of(words[3]), words[4], words[5]);
            case "consume":
                return consume(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), Path.of(words[4]));
            case "offsets":
                return offsets(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
            case "create":
                return create(words[1], Integer.parseInt(words[2]), Short.parseShort(words[3]),
                    Arrays.copyOfRange(words, 4, words.length));
            case "delete":
                return delete(words[1]);
            case "write":
                return new Owning(bootstrap)
                    .write(words[1], words[2], words[3], words[4], Path.of(words[5]), Path.of(words[6]));
            case "read":
                return new Owning(bootstrap).read(words[1], words[2], Path.of(words[3]), Path.of(words[4]));
            case "churn":
                try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                    return new Churn(consumer, words[1], Integer.parseInt(words[2]), Long.parseLong(words[4]))
                        .run(Integer.parseInt(words[3]));
                }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String produce(String topic, int partitions, Path values, String codec, String idempotent) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("enable.idempotence", idempotent);
        settings.put("linger.ms", "5");
        settings.put("batch.size", "262144");
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String value : Files.readAllLines(values, StandardCharsets.ISO_8859_1)) {
                int partition = answers.size() % partitions;
                byte[] bytes = value.getBytes(StandardCharsets.ISO_8859_1);
                answers.add(producer.send(new ProducerRecord<>(topic, partition, null, bytes)));
            }
        }
        for (Future<RecordMetadata> answer : answers) {
            answer.get();
        }
        return String.valueOf(answers.size());
    }

    private String consume(String topic, int partitions, int count, Path out) throws Exception {
        int read = 0;
        long deadline = System.currentTimeMillis() + GIVE_UP_MS;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer();
                PrintWriter writer = new PrintWriter(Files.newBufferedWriter(out, StandardCharsets.ISO_8859_1))) {
            consumer.assign(partitionsOf(topic, partitions));
            while (read < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    String value = new String(record.value(), StandardCharsets.ISO_8859_1);
                    writer.print(record.partition() + "\t" + record.offset() + "\t" + record.timestamp() + "\t");
                    writer.print(value + "\n");
                    read++;
                }
            }
        }
        return String.valueOf(read);
    }

    /** Comma-separated offsets, -1 where no record is at or after the time. */
    private String offsets(String topic, int partitions, long timestamp) {
        Map<TopicPartition, Long> asked = new HashMap<>();
        partitionsOf(topic, partitions).forEach(partition -> asked.put(partition, timestamp));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(asked);
            return partitionsOf(topic, partitions).stream()
                .map(partition -> found.get(partition) == null ? "-1" : String.valueOf(found.get(partition).offset()))
                .collect(Collectors.joining(","));
        }
    }

    private String create(String topic, int partitions, short copies, String[] configs) throws Exception {
        Map<String, String> settings = Arrays.stream(configs)
            .map(word -> word.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, copies).configs(settings))).all().get();
        }
        return "";
    }

    private String delete(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.deleteTopics(List.of(topic)).all().get();
        }
        return "";
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "20000");
        settings.put("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitionsOf(String topic, int partitions) {
        return IntStream.range(0, partitions)
            .mapToObj(index -> new TopicPartition(topic, index))
            .collect(Collectors.toList());
    }
}
