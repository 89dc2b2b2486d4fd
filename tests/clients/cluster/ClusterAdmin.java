// The Java admin client on three brokers: each step prints "step: what it saw", one line a step.
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

public class ClusterAdmin {
    private static Admin admin;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        admin = Admin.create(Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", "60000"));
        step("cluster", ClusterAdmin::cluster);
        step("create", ClusterAdmin::create);
        step("describe", ClusterAdmin::describe);
        step("refused", ClusterAdmin::refused);
        step("reassign", ClusterAdmin::reassign);
        step("no-replica", ClusterAdmin::noReplica);
        step("elect", ClusterAdmin::elect);
        step("log-dirs", ClusterAdmin::logDirs);
        step("broker-config", ClusterAdmin::brokerConfig);
        step("offsets", ClusterAdmin::offsets);
        step("more-partitions", ClusterAdmin::morePartitions);
        step("delete", ClusterAdmin::delete);
        admin.close();
    }

    interface Step {
        Object run() throws Exception;
    }

    private static void step(String name, Step step) {
        try {
            System.out.println(name + ": " + step.run());
        } catch (ExecutionException failure) {
            System.out.println(name + ": " + failure.getCause().getClass().getSimpleName());
        } catch (Exception failure) {
            System.out.println(name + ": " + failure);
        }
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static Object cluster() throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        Collection<Node> nodes = found.nodes().get();
        boolean known = ids(nodes).contains(found.controller().get().id());
        String racks = nodes.stream().map(Node::rack).sorted().collect(Collectors.joining(","));
        return ids(nodes).stream().sorted().collect(Collectors.toList()) + " " + racks + " controller " + known;
    }

    private static Object create() throws Exception {
        Map<Integer, List<Integer>> assignment = Map.of(0, List.of(2, 1), 1, List.of(3, 2));
        CreateTopicsResult made = admin.createTopics(List.of(new NewTopic(topic, assignment)));
        made.all().get();
        return made.numPartitions(topic).get() + " " + made.replicationFactor(topic).get();
    }

    private static List<TopicPartitionInfo> partitions() throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
    }

    private static String shown(TopicPartitionInfo each) {
        List<Integer> isr = ids(each.isr()).stream().sorted().collect(Collectors.toList());
        return each.partition() + " led by " + (each.leader() == null ? -1 : each.leader().id())
            + " of " + ids(each.replicas()) + " in sync " + isr;
    }

    private static String settled(int partition, List<Integer> replicas, int leader) throws Exception {
        for (int attempt = 0; ; attempt++) {
            TopicPartitionInfo found = partitions().get(partition);
            boolean done = ids(found.replicas()).equals(replicas) && found.isr().size() == replicas.size()
                && found.leader() != null && found.leader().id() == leader;
            if (done || attempt == 300) {
                return shown(found);
            }
            Thread.sleep(100);
        }
    }

    private static Object describe() throws Exception {
        return settled(0, List.of(2, 1), 2) + "; " + settled(1, List.of(3, 2), 3);
    }

    private static Object refused() throws Exception {
        admin.createTopics(List.of(new NewTopic(topic + "-no", 1, (short) 4))).all().get();
        return "made";
    }

    private static Object reassign() throws Exception {
        TopicPartition zero = new TopicPartition(topic, 0);
        Optional<NewPartitionReassignment> wanted = Optional.of(new NewPartitionReassignment(List.of(1, 3)));
        admin.alterPartitionReassignments(Map.of(zero, wanted)).all().get();
        String after = settled(0, List.of(1, 3), 1);
        return after + " left " + admin.listPartitionReassignments().reassignments().get().containsKey(zero);
    }

    private static Object noReplica() throws Exception {
        TopicPartition zero = new TopicPartition(topic, 0);
        Optional<NewPartitionReassignment> wanted = Optional.of(new NewPartitionReassignment(List.of(1, 9)));
        admin.alterPartitionReassignments(Map.of(zero, wanted)).all().get();
        return "started";
    }

    private static Object elect() throws Exception {
        TopicPartition one = new TopicPartition(topic, 1);
        TopicPartition nowhere = new TopicPartition(topic, 7);
        Map<TopicPartition, Optional<Throwable>> said =
            admin.electLeaders(ElectionType.PREFERRED, Set.of(one, nowhere)).partitions().get();
        return said.get(one).get().getClass().getSimpleName() + " " + said.get(nowhere).get().getClass().getSimpleName();
    }

    private static Object logDirs() throws Exception {
        TopicPartition one = new TopicPartition(topic, 1);
        Map<Integer, Map<String, LogDirDescription>> said = admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get();
        return said.entrySet().stream()
            .filter(each -> each.getValue().values().stream().anyMatch(d -> d.replicaInfos().containsKey(one)))
            .map(Map.Entry::getKey).sorted().collect(Collectors.toList());
    }

    private static Object brokerConfig() throws Exception {
        ConfigResource two = new ConfigResource(ConfigResource.Type.BROKER, "2");
        AlterConfigOp change = new AlterConfigOp(
            new ConfigEntry("log.flush.interval.messages", "777777"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(two, List.of(change))).all().get();
        for (int attempt = 0; ; attempt++) {
            ConfigEntry found = admin.describeConfigs(List.of(two)).all().get().get(two).get("log.flush.interval.messages");
            if (found.value().equals("777777") || attempt == 100) {
                return found.value() + " " + found.source();
            }
            Thread.sleep(100);
        }
    }

    private static Object offsets() throws Exception {
        Map<TopicPartition, OffsetSpec> asked = Map.of(
            new TopicPartition(topic, 0), OffsetSpec.latest(), new TopicPartition(topic, 1), OffsetSpec.latest());
        return admin.listOffsets(asked).all().get().values().stream().mapToLong(r -> r.offset()).sum();
    }

    private static Object morePartitions() throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3, List.of(List.of(1, 2))))).all().get();
        for (int attempt = 0; partitions().size() < 3 && attempt < 100; attempt++) {
            Thread.sleep(100);
        }
        return settled(2, List.of(1, 2), 1);
    }

    private static Object delete() throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
        for (int attempt = 0; admin.listTopics().names().get().contains(topic) && attempt < 100; attempt++) {
            Thread.sleep(100);
        }
        return admin.listTopics().names().get().contains(topic);
    }
}
