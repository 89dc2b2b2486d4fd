import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The API of 0.10: messages of format 1 have timestamps, and offsets are found by them. */
final class Era {
    static final Set<String> ABSENT = Collections.emptySet();

    static Map<String, Main.Feature> features(Clients clients) {
        Map<String, Main.Feature> features = new HashMap<>();
        features.put("timestamps", () -> timestamps(clients));
        features.put("offsets-for-times", () -> offsetsForTimes(clients));
        features.put("list-offsets", () -> listOffsets(clients));
        return features;
    }

    private static void sendTimed(Clients clients, TopicPartition to, String codec) throws Exception {
        List<ProducerRecord<String, String>> sent = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            sent.add(new ProducerRecord<>(to.topic(), 0, 1_000_000L + 10 * i, null, "x"));
        }
        clients.send(sent, "compression.type", codec, "linger.ms", "50");
    }

    private static void timestamps(Clients clients) throws Exception {
        for (String codec : Clients.list("none", "gzip")) {
            TopicPartition partition = clients.newPartition("timestamps-" + codec);
            sendTimed(clients, partition, codec);
            try (KafkaConsumer<String, String> consumer = clients.consumer()) {
                consumer.assign(Collections.singletonList(partition));
                ConsumerRecord<String, String> record = clients.read(consumer, 20).get(7);
                Clients.expect("timestamp", record.timestamp(), 1_000_070L);
                Clients.expect("timestamp type", record.timestampType().toString(), "CreateTime");
            }
        }
    }

    private static void offsetsForTimes(Clients clients) throws Exception {
        TopicPartition partition = clients.newPartition("times");
        sendTimed(clients, partition, "gzip");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Collections.singletonMap(partition, 1_000_055L)).get(partition);
            Clients.expect("offset and time", found.offset() + " " + found.timestamp(), "6 1000060");
            Object none = consumer.offsetsForTimes(Collections.singletonMap(partition, 9_000_000L)).get(partition);
            Clients.expect("a time past the end", none, null);
        }
    }

    private static void listOffsets(Clients clients) throws Exception {
        TopicPartition partition = clients.newPartition("offsets");
        clients.sendValues(partition, "0", "1", "2");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            Map<TopicPartition, Long> first = consumer.beginningOffsets(Collections.singleton(partition));
            Map<TopicPartition, Long> end = consumer.endOffsets(Collections.singleton(partition));
            Clients.expect("offsets", first.get(partition) + " " + end.get(partition), "0 3");
        }
    }

    static void seekToBeginning(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        consumer.seekToBeginning(Collections.singleton(partition));
    }

    static void seekToEnd(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        consumer.seekToEnd(Collections.singleton(partition));
    }

    private Era() {
    }
}
