import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The API since 2.5. */
final class Era {
    static final Set<String> ABSENT = hasConsumerProtocol() ? Set.of() : Set.of("group-consumer-protocol");
    static final String IDEMPOTENT_IN_FLIGHT = "5";

    static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer, long timeoutMs) {
        return consumer.poll(Duration.ofMillis(timeoutMs));
    }

    /** `all` became `allTopicNames` in 3.1 and was removed in 4.0. */
    @SuppressWarnings("unchecked")
    static TopicDescription describe(AdminClient admin, String topic) throws Exception {
        Object result = admin.describeTopics(Collections.singleton(topic));
        Object future;
        try {
            future = result.getClass().getMethod("allTopicNames").invoke(result);
        } catch (NoSuchMethodException old) {
            future = result.getClass().getMethod("all").invoke(result);
        }
        return ((KafkaFuture<Map<String, TopicDescription>>) future).get().get(topic);
    }

    static void checkAdminOffsets(AdminClient admin, TopicPartition partition) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = Map.of(partition, OffsetSpec.latest());
        Clients.expect("latest by admin", admin.listOffsets(latest).all().get().get(partition).offset(), 10L);
        Map<TopicPartition, OffsetSpec> late = Map.of(partition, OffsetSpec.forTimestamp(Long.MAX_VALUE));
        Clients.expect("no such time by admin", admin.listOffsets(late).all().get().get(partition).offset(), -1L);
    }

    static void setConfig(AdminClient admin, String topic, String key, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, Set.of(change))).all().get();
    }

    static void createPartitions(AdminClient admin, String topic, int count) throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get();
    }

    static long deleteRecords(AdminClient admin, TopicPartition partition, long before) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = Map.of(partition, RecordsToDelete.beforeOffset(before));
        return admin.deleteRecords(wanted).lowWatermarks().get(partition).get().lowWatermark();
    }

    static OffsetAndMetadata committed(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        return consumer.committed(Set.of(partition)).get(partition);
    }

    static void sendOffsets(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            Map<TopicPartition, OffsetAndMetadata> offsets) {
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private static boolean hasConsumerProtocol() {
        try {
            Class.forName("org.apache.kafka.clients.consumer.GroupProtocol");
            return true;
        } catch (ClassNotFoundException old) {
            return false;
        }
    }

    private Era() {
    }
}
