import java.util.Collections;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** The API of 0.9, the first Java consumer: messages have no timestamps. */
final class Era {
    static final Set<String> ABSENT = Collections.emptySet();

    static Map<String, Main.Feature> features(Clients clients) {
        return Collections.emptyMap();
    }

    static void seekToBeginning(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        consumer.seekToBeginning(partition);
    }

    static void seekToEnd(KafkaConsumer<String, String> consumer, TopicPartition partition) {
        consumer.seekToEnd(partition);
    }

    private Era() {
    }
}
