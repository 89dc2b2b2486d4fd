import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** What a Java application does, written so that every version of kafka-clients compiles it. */
final class Features {
    private final Clients clients;

    Features(Clients clients) {
        this.clients = clients;
    }

    Map<String, Main.Feature> all() {
        Map<String, Main.Feature> features = new HashMap<>();
        features.put("connect", this::connect);
        features.put("create-topic", this::createTopic);
        features.put("describe-topic", this::describeTopic);
        for (String codec : Arrays.asList("none", "gzip", "snappy", "lz4", "zstd")) {
            features.put("codec-" + codec, () -> thereAndBack("codec-" + codec, "compression.type", codec,
                    "linger.ms", "20", "enable.idempotence", "false"));
        }
        features.put("idempotence", () -> thereAndBack("idempotence", "enable.idempotence", "true",
                "max.in.flight.requests.per.connection", Era.IDEMPOTENT_IN_FLIGHT, "retries", "10"));
        features.put("assign", this::assign);
        features.put("headers", this::headers);
        features.put("timestamps", this::timestamps);
        features.put("offsets-for-times", this::offsetsForTimes);
        features.put("list-offsets", this::listOffsets);
        features.put("describe-configs", this::describeConfigs);
        features.put("alter-configs", this::alterConfigs);
        features.put("create-partitions", this::createPartitions);
        features.put("delete-records", this::deleteRecords);
        features.put("delete-topic", this::deleteTopic);
        features.put("group", () -> group("classic"));
        features.put("group-consumer-protocol", () -> group("consumer"));
        features.put("transaction", this::transaction);
        features.put("transaction-offsets", this::transactionOffsets);
        return features;
    }

    private void connect() throws Exception {
        try (AdminClient admin = clients.admin()) {
            List<String> addresses = new ArrayList<>();
            for (Node node : admin.describeCluster().nodes().get()) {
                addresses.add(node.host() + ":" + node.port());
            }
            Clients.expect("brokers", addresses, Clients.list(clients.bootstrap));
        }
    }

    private void createTopic() throws Exception {
        String topic = clients.newTopic("create", 3, Collections.singletonMap("retention.ms", "99999"));
        try (AdminClient admin = clients.admin()) {
            Clients.expect("listed", admin.listTopics().names().get().contains(topic), true);
            try {
                admin.createTopics(Collections.singleton(new NewTopic(topic, 1, (short) 1))).all().get();
                throw new IllegalStateException("a topic was created twice");
            } catch (ExecutionException failure) {
                Clients.expect("creating twice", failure.getCause().getClass(), TopicExistsException.class);
            }
        }
    }

    private void describeTopic() throws Exception {
        String topic = clients.newTopic("describe", 3, Collections.emptyMap());
        try (AdminClient admin = clients.admin()) {
            TopicDescription description = Era.describe(admin, topic);
            int index = 0;
            for (TopicPartitionInfo partition : description.partitions()) {
                List<Node> leader = Collections.singletonList(partition.leader());
                Clients.expect("partition", partition.partition(), index++);
                Clients.expect("replicas", partition.replicas(), leader);
                Clients.expect("in-sync replicas", partition.isr(), leader);
            }
            Clients.expect("partitions", index, 3);
        }
    }

    private void thereAndBack(String name, String... settings) throws Exception {
        String topic = clients.newTopic(name);
        List<String> texts = Clients.texts(name, 300);
        clients.send(Clients.records(topic, texts), settings);
        List<ConsumerRecord<String, String>> records = clients.readPartition(topic, 300);
        Clients.expect("values", Clients.values(records), texts);
        Clients.expect("last offset", records.get(299).offset(), 299L);
    }

    private void assign() throws Exception {
        String topic = clients.newTopic("assign", 3, Collections.emptyMap());
        List<ProducerRecord<String, String>> sent = new ArrayList<>();
        for (int i = 0; i < 15; i++) {
            sent.add(new ProducerRecord<>(topic, i % 3, null, String.valueOf(i)));
        }
        clients.send(sent);
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            List<TopicPartition> chosen = Arrays.asList(new TopicPartition(topic, 0), new TopicPartition(topic, 2));
            consumer.assign(chosen);
            chosen.forEach(partition -> consumer.seek(partition, 2));
            Map<Integer, List<String>> got = new TreeMap<>();
            for (ConsumerRecord<String, String> record : clients.read(consumer, 6)) {
                got.computeIfAbsent(record.partition(), ignored -> new ArrayList<>()).add(record.value());
            }
            Clients.expect("values", got.toString(), "{0=[6, 9, 12], 2=[8, 11, 14]}");
        }
    }

    private void headers() throws Exception {
        String topic = clients.newTopic("headers");
        List<Header> sent = Arrays.asList(new RecordHeader("a", new byte[] {1}),
                new RecordHeader("a", new byte[] {2}), new RecordHeader("b", new byte[0]));
        clients.send(Arrays.asList(new ProducerRecord<>(topic, 0, "key", "value", sent),
                new ProducerRecord<>(topic, 0, "tombstone", null)));
        List<ConsumerRecord<String, String>> records = clients.readPartition(topic, 2);
        Clients.expect("headers", Arrays.asList(records.get(0).headers().toArray()), sent);
        Clients.expect("key", records.get(0).key(), "key");
        Clients.expect("key", records.get(1).key(), "tombstone");
        Clients.expect("value", records.get(1).value(), null);
    }

    private void sendTimed(String topic) throws Exception {
        List<ProducerRecord<String, String>> sent = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            sent.add(new ProducerRecord<>(topic, 0, 1_000_000L + 10 * i, null, "x"));
        }
        clients.send(sent);
    }

    private void timestamps() throws Exception {
        String topic = clients.newTopic("timestamps");
        sendTimed(topic);
        ConsumerRecord<String, String> record = clients.readPartition(topic, 20).get(7);
        Clients.expect("timestamp", record.timestamp(), 1_000_070L);
        Clients.expect("timestamp type", record.timestampType().toString(), "CreateTime");
    }

    private void offsetsForTimes() throws Exception {
        String topic = clients.newTopic("times");
        sendTimed(topic);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = clients.consumer()) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(
                    Collections.singletonMap(partition, 1_000_055L)).get(partition);
            Clients.expect("offset and time", found.offset() + " " + found.timestamp(), "6 1000060");
            Object none = consumer.offsetsForTimes(Collections.singletonMap(partition, 9_000_000L)).get(partition);
            Clients.expect("a time past the end", none, null);
        }
    }

    private void listOffsets() throws Exception {
        String topic = clients.newTopic("offsets");
        clients.send(Clients.records(topic, Clients.texts("offsets", 10)));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = clients.consumer(); AdminClient admin = clients.admin()) {
            Map<TopicPartition, Long> first = consumer.beginningOffsets(Collections.singleton(partition));
            Map<TopicPartition, Long> end = consumer.endOffsets(Collections.singleton(partition));
            Clients.expect("offsets", first.get(partition) + " " + end.get(partition), "0 10");
            Era.checkAdminOffsets(admin, partition);
        }
    }

    private static String config(AdminClient admin, String topic, String key) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).get(key).value();
    }

    private void describeConfigs() throws Exception {
        String topic = clients.newTopic("describe-configs", 1, Collections.singletonMap("retention.ms", "99999"));
        try (AdminClient admin = clients.admin()) {
            Clients.expect("retention.ms", config(admin, topic, "retention.ms"), "99999");
            Clients.expect("cleanup.policy", config(admin, topic, "cleanup.policy"), "delete");
        }
    }

    private void alterConfigs() throws Exception {
        String topic = clients.newTopic("alter-configs");
        try (AdminClient admin = clients.admin()) {
            Era.setConfig(admin, topic, "retention.ms", "77777");
            clients.until("retention.ms became 77777", () -> "77777".equals(config(admin, topic, "retention.ms")));
        }
    }

    private void createPartitions() throws Exception {
        String topic = clients.newTopic("create-partitions");
        try (AdminClient admin = clients.admin()) {
            Era.createPartitions(admin, topic, 3);
            clients.until("three partitions were described",
                    () -> Era.describe(admin, topic).partitions().size() == 3);
        }
        clients.send(Collections.singletonList(new ProducerRecord<>(topic, 2, null, "new")));
    }

    private void deleteRecords() throws Exception {
        String topic = clients.newTopic("delete-records");
        clients.send(Clients.records(topic, Clients.texts("delete", 10)));
        TopicPartition partition = new TopicPartition(topic, 0);
        try (AdminClient admin = clients.admin(); KafkaConsumer<String, String> consumer = clients.consumer()) {
            Clients.expect("low watermark", Era.deleteRecords(admin, partition, 7), 7L);
            Clients.expect("start", consumer.beginningOffsets(Collections.singleton(partition)).get(partition), 7L);
        }
    }

    private void deleteTopic() throws Exception {
        String topic = clients.newTopic("delete");
        try (AdminClient admin = clients.admin()) {
            admin.deleteTopics(Collections.singleton(topic)).all().get();
            clients.until("the topic was gone", () -> !admin.listTopics().names().get().contains(topic));
        }
    }

    private void group(String protocol) throws Exception {
        String name = "group-" + protocol;
        String topic = clients.newTopic(name);
        clients.send(Clients.records(topic, Clients.list("0", "1", "2", "3", "4")));
        readAsMember(protocol, topic, Clients.list("0", "1", "2", "3", "4"), 5);
        clients.send(Clients.records(topic, Clients.list("5")));
        readAsMember(protocol, topic, Clients.list("5"), 6);
    }

    private void readAsMember(String protocol, String topic, List<String> expected, long committed) {
        String[] settings = "classic".equals(protocol)
                ? new String[] {"group.id", topic}
                : new String[] {"group.id", topic, "group.protocol", protocol};
        try (KafkaConsumer<String, String> consumer = clients.consumer(settings)) {
            consumer.subscribe(Collections.singleton(topic));
            Clients.expect("values", Clients.values(clients.read(consumer, expected.size())), expected);
            consumer.commitSync();
            OffsetAndMetadata found = Era.committed(consumer, new TopicPartition(topic, 0));
            Clients.expect("committed offset", found.offset(), committed);
        }
    }

    private void transaction() throws Exception {
        String topic = clients.newTopic("transaction");
        try (KafkaProducer<String, String> producer = clients.producer("transactional.id", topic)) {
            producer.initTransactions();
            for (String value : Clients.list("kept", "lost", "last")) {
                producer.beginTransaction();
                for (ProducerRecord<String, String> record : Clients.records(topic, Collections.nCopies(3, value))) {
                    producer.send(record).get();
                }
                if ("lost".equals(value)) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<ConsumerRecord<String, String>> records =
                clients.readPartition(topic, 6, "isolation.level", "read_committed");
        Clients.expect("values", Clients.values(records),
                Clients.list("kept", "kept", "kept", "last", "last", "last"));
    }

    private void transactionOffsets() throws Exception {
        String topic = clients.newTopic("transaction-offsets");
        TopicPartition partition = new TopicPartition(topic, 0);
        clients.send(Clients.records(topic, Clients.list("0", "1", "2")));
        try (KafkaProducer<String, String> producer = clients.producer("transactional.id", topic);
                KafkaConsumer<String, String> consumer = clients.consumer("group.id", topic)) {
            consumer.subscribe(Collections.singleton(topic));
            clients.read(consumer, 3);
            producer.initTransactions();
            producer.beginTransaction();
            Era.sendOffsets(producer, consumer, Collections.singletonMap(partition, new OffsetAndMetadata(3)));
            producer.commitTransaction();
            clients.until("offset 3 was committed", () -> {
                OffsetAndMetadata found = Era.committed(consumer, partition);
                return found != null && found.offset() == 3;
            });
        }
    }
}
