import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Partitions enter and leave one consumer's fetch session, are paused, resumed and moved, while every record that comes
 * back must be the next one of its partition.
 */
final class Churn {
    private static final Duration POLL = Duration.ofMillis(20);

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<TopicPartition> all;
    private final Random random;
    private final Map<TopicPartition, Long> next = new HashMap<>();
    private long read = 0;

    Churn(KafkaConsumer<byte[], byte[]> consumer, String topic, int partitions, long seed) {
        this.consumer = consumer;
        this.all = Interop.partitionsOf(topic, partitions);
        this.random = new Random(seed);
    }

    /** Answers with the number of records read, after a last pass that reads everything. */
    String run(int rounds) {
        assign(all);
        for (int round = 0; round < rounds; round++) {
            switch (random.nextInt(4)) {
                case 0:
                    assign(some(all));
                    break;
                case 1:
                    consumer.pause(some(consumer.assignment()));
                    break;
                case 2:
                    consumer.resume(some(consumer.paused()));
                    break;
                default:
                    some(consumer.assignment()).forEach(partition -> seek(partition, random.nextInt(10)));
            }
            poll();
        }
        readEverything();
        return String.valueOf(read);
    }

    private void readEverything() {
        assign(all);
        consumer.resume(consumer.paused());
        all.forEach(partition -> seek(partition, 0));
        Map<TopicPartition, Long> ends = consumer.endOffsets(all);
        long deadline = System.currentTimeMillis() + Interop.GIVE_UP_MS;
        while (!all.stream().allMatch(partition -> next.get(partition) >= ends.get(partition))) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not everything was read in time");
            }
            poll();
        }
    }

    private void assign(Collection<TopicPartition> partitions) {
        Set<TopicPartition> before = consumer.assignment();
        consumer.assign(partitions);
        for (TopicPartition partition : partitions) {
            if (!before.contains(partition)) {
                seek(partition, random.nextInt(10));
            }
        }
    }

    private void seek(TopicPartition partition, long offset) {
        consumer.seek(partition, offset);
        next.put(partition, offset);
    }

    private void poll() {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            long expected = next.get(partition);
            if (record.offset() != expected) {
                throw new IllegalStateException(partition + ": " + record.offset() + " instead of " + expected);
            }
            next.put(partition, expected + 1);
            read++;
        }
    }

    private List<TopicPartition> some(Collection<TopicPartition> partitions) {
        List<TopicPartition> shuffled = new ArrayList<>(new HashSet<>(partitions));
        shuffled.sort((a, b) -> Integer.compare(a.partition(), b.partition()));
        Collections.shuffle(shuffled, random);
        return shuffled.subList(0, shuffled.isEmpty() ? 0 : 1 + random.nextInt(shuffled.size()));
    }
}
