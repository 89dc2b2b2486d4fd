import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The API of 0.11: the first with idempotence, transactions, headers and an admin client. */
final class Era {
    static final Set<String> ABSENT = new HashSet<>(
            Arrays.asList("codec-zstd", "create-partitions", "delete-records", "group-consumer-protocol"));
    static final String IDEMPOTENT_IN_FLIGHT = "1";

    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long timeoutMs) {
        return consumer.poll(timeoutMs);
    }

    static TopicDescription describe(AdminClient admin, String topic) throws Exception {
        return admin.describeTopics(Collections.singleton(topic)).all().get().get(topic);
    }

    /** This admin client lists no offsets. */
    static void checkAdminOffsets(AdminClient admin, TopicPartition partition) {
    }

    static void setConfig(AdminClient admin, String topic, String key, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = new Config(Collections.singleton(new ConfigEntry(key, value)));
        admin.alterConfigs(Collections.singletonMap(resource, config)).all().get();
    }

    static void createPartitions(AdminClient admin, String topic, int count) {
        throw new UnsupportedOperationException();
    }

    static long deleteRecords(AdminClient admin, TopicPartition partition, long before) {
        throw new UnsupportedOperationException();
    }

    static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }

    static void sendOffsets(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            Map<TopicPartition, OffsetAndMetadata> offsets) {
        String groupNamedAsTheTopic = offsets.keySet().iterator().next().topic();
        producer.sendOffsetsToTransaction(offsets, groupNamedAsTheTopic);
    }

    private Era() {
    }
}
