import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** What an application could do before 0.11: messages of format 0 or 1, with keys and without headers. */
final class Features {
    private static final int COUNT = 1_000;
    private static final int EACH_TOMBSTONE = 7;
    private final Clients clients;

    Features(Clients clients) {
        this.clients = clients;
    }

    Map<String, Main.Feature> all() {
        Map<String, Main.Feature> features = new HashMap<>();
        features.put("connect", this::connect);
        features.put("describe-topic", this::describeTopic);
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4")) {
            features.put("codec-" + codec, () -> thereAndBack("codec-" + codec, codec));
        }
        features.put("assign", this::assign);
        features.put("group", this::group);
        features.putAll(Era.features(clients));
        return features;
    }

    private void connect() {
        TopicPartition partition = clients.newPartition("connect");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            PartitionInfo listed = consumer.listTopics().get(partition.topic()).get(0);
            Clients.expect("leader", listed.leader().host() + ":" + listed.leader().port(), clients.bootstrap);
        }
    }

    private void describeTopic() {
        TopicPartition partition = clients.newPartition("describe");
        List<PartitionInfo> found = clients.describe(partition.topic());
        Clients.expect("partitions", found.size(), 1);
        Clients.expect("replicas", found.get(0).replicas().length, 1);
        Clients.expect("in-sync replica", found.get(0).inSyncReplicas()[0], found.get(0).leader());
    }

    /** Messages in one wrapper of several compressed blocks, read from the beginning and from within it. */
    private void thereAndBack(String name, String codec) throws Exception {
        TopicPartition partition = clients.newPartition(name);
        List<ProducerRecord<String, String>> sent = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            String value = String.join(" ", Collections.nCopies(10, name + " " + i));
            sent.add(new ProducerRecord<>(partition.topic(), 0, i % 2 == 0 ? "key " + i : null,
                    i % EACH_TOMBSTONE == 0 ? null : value));
        }
        clients.send(sent, "compression.type", codec, "linger.ms", "50", "batch.size", "500000");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            consumer.assign(Collections.singletonList(partition));
            check(clients.read(consumer, COUNT), sent, 0);
            int middle = COUNT / 2 + 1;
            consumer.seek(partition, middle);
            check(clients.read(consumer, COUNT - middle), sent, middle);
        }
    }

    private static void check(List<ConsumerRecord<String, String>> got, List<ProducerRecord<String, String>> sent,
            int first) {
        Clients.expect("count", got.size(), sent.size() - first);
        for (int i = 0; i < got.size(); i++) {
            Clients.expect("offset", got.get(i).offset(), (long) first + i);
            Clients.expect("key", got.get(i).key(), sent.get(first + i).key());
            Clients.expect("value", got.get(i).value(), sent.get(first + i).value());
        }
    }

    private void assign() throws Exception {
        TopicPartition one = clients.newPartition("assign-one");
        TopicPartition other = clients.newPartition("assign-other");
        clients.sendValues(one, "a", "b", "c");
        clients.sendValues(other, "d", "e", "f");
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            consumer.assign(Arrays.asList(one, other));
            Clients.expect("from the beginning", byTopic(consumer, 6, one), "{false=[d, e, f], true=[a, b, c]}");
            consumer.seek(one, 2);
            consumer.seek(other, 1);
            Clients.expect("from offsets", byTopic(consumer, 3, one), "{false=[e, f], true=[c]}");
            Era.seekToEnd(consumer, one);
            Clients.expect("the end", consumer.position(one), 3L);
            Era.seekToBeginning(consumer, one);
            Clients.expect("the beginning", consumer.position(one), 0L);
        }
    }

    private String byTopic(KafkaConsumer<String, String> consumer, int count, TopicPartition one) {
        Map<Boolean, List<String>> got = new TreeMap<>();
        for (ConsumerRecord<String, String> record : clients.read(consumer, count)) {
            got.computeIfAbsent(record.topic().equals(one.topic()), ignored -> new ArrayList<>()).add(record.value());
        }
        return got.toString();
    }

    private void group() throws Exception {
        TopicPartition partition = clients.newPartition("group");
        clients.sendValues(partition, "0", "1", "2", "3", "4");
        readAsMember(partition, Clients.list("0", "1", "2", "3", "4"), 5);
        clients.sendValues(partition, "5");
        readAsMember(partition, Clients.list("5"), 6);
    }

    private void readAsMember(TopicPartition partition, List<String> expected, long committed) {
        try (KafkaConsumer<String, String> consumer = clients.consumer("group.id", partition.topic())) {
            consumer.subscribe(Collections.singletonList(partition.topic()));
            Clients.expect("values", Clients.values(clients.read(consumer, expected.size())), expected);
            consumer.commitSync();
            Clients.expect("committed offset", consumer.committed(partition).offset(), committed);
        }
    }
}
