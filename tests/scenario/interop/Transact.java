// Apache Kafka's own producer and admin client, run by `java Transact.java <bootstrap>`; prints facts as `name value`.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transact {
    private static final TopicPartition SOURCE = new TopicPartition("source", 0);
    private static final TopicPartition SINK = new TopicPartition("sink", 0);
    private static String bootstrap;

    private static KafkaProducer<String, String> producer() {
        KafkaProducer<String, String> made = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", "java", "transaction.timeout.ms", 20000),
            new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static KafkaConsumer<String, String> consumer() {
        return new KafkaConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed", "group.id", "java",
                "enable.auto.commit", false, "auto.offset.reset", "earliest"),
            new StringDeserializer(), new StringDeserializer());
    }

    private static ProducerRecord<String, String> record(TopicPartition to, String value) {
        return new ProducerRecord<>(to.topic(), to.partition(), "key", value);
    }

    private static List<String> committed() {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = consumer()) {
            reader.assign(List.of(SINK));
            reader.seekToBeginning(List.of(SINK));
            long end = reader.endOffsets(List.of(SINK)).get(SINK);
            while (reader.position(SINK) < end) {
                for (ConsumerRecord<String, String> each : reader.poll(Duration.ofMillis(200))) {
                    values.add(each.value());
                }
            }
        }
        return values;
    }

    private static void transform(KafkaProducer<String, String> producer) {
        producer.beginTransaction();
        for (int i = 0; i < 3; i++) {
            producer.send(record(SOURCE, "in" + i));
        }
        producer.commitTransaction();
        try (KafkaConsumer<String, String> reader = consumer()) {
            reader.subscribe(List.of("source"));
            int seen = 0;
            while (seen < 3) {
                ConsumerRecords<String, String> records = reader.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> each : records) {
                    producer.send(record(SINK, "out" + seen++));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(SOURCE, new OffsetAndMetadata(reader.position(SOURCE))), reader.groupMetadata());
                producer.commitTransaction();
            }
            System.out.println("offset " + reader.committed(Set.of(SOURCE)).get(SOURCE).offset());
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        KafkaProducer<String, String> zombie = producer();
        for (int i = 0; i < 9; i++) {
            zombie.beginTransaction();
            zombie.send(record(SINK, "t" + i));
            if (i % 3 == 2) {
                zombie.flush();
                zombie.abortTransaction();
            } else {
                zombie.commitTransaction();
            }
        }
        zombie.beginTransaction();
        zombie.abortTransaction();
        zombie.beginTransaction();
        zombie.commitTransaction();
        System.out.println("committed " + committed());
        zombie.beginTransaction();
        zombie.send(record(SINK, "lost")).get();
        KafkaProducer<String, String> successor = producer();
        try {
            zombie.send(record(SINK, "lost too"));
            zombie.commitTransaction();
        } catch (KafkaException error) {
            System.out.println("fenced " + error.getClass().getSimpleName());
        }
        transform(successor);
        System.out.println("committed " + committed());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            System.out.println("feature " + admin.describeFeatures().featureMetadata().get()
                .finalizedFeatures().get("transaction.version").maxVersionLevel());
            System.out.println("state " + admin.describeTransactions(List.of("java")).all().get().get("java").state());
            System.out.println("listed " + admin.listTransactions().all().get().size());
        }
        zombie.close(Duration.ZERO);
        successor.close();
    }
}
