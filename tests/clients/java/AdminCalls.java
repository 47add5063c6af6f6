import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/** Calls of Java's Admin: arguments are the bootstrap servers, two topics and a node; prints what came of each, a line a call. */
public class AdminCalls {
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        List<String> topics = List.of(arguments[1], arguments[2]);
        ConfigResource loggers = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, arguments[3]);
        try (Admin made = Admin.create(properties)) {
            admin = made;
            describeTopics(topics);
            listConfigResources();
            alterLoggers(loggers);
            describeProducers(properties, topics.get(0));
        }
    }

    private static void describeTopics(List<String> topics) throws Exception {
        Map<String, TopicDescription> byName = admin.describeTopics(topics).allTopicNames().get();
        List<Uuid> ids = topics.stream().map(topic -> byName.get(topic).topicId()).toList();
        tell("by-name", new TreeSet<>(byName.keySet()));
        Map<Uuid, TopicDescription> byId = admin.describeTopics(TopicCollection.ofTopicIds(ids)).allTopicIds().get();
        Set<String> found = new TreeSet<>();
        byId.forEach((id, description) -> found.add(description.name() + ":" + description.partitions().size()));
        tell("by-id", found);
        TopicCollection unknown = TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()));
        tell("unknown-id", failure(() -> admin.describeTopics(unknown).allTopicIds().get()));
    }

    private static void listConfigResources() throws Exception {
        Collection<ConfigResource> all = admin.listConfigResources().all().get();
        Map<String, Integer> counts = new TreeMap<>();
        all.forEach(resource -> counts.merge(resource.type().name(), 1, Integer::sum));
        tell("resource-types", counts.keySet());
        Set<String> nodes = new TreeSet<>();
        admin.listConfigResources(Set.of(ConfigResource.Type.BROKER_LOGGER), new ListConfigResourcesOptions())
            .all().get().forEach(resource -> nodes.add(resource.type() + "/" + resource.name()));
        tell("logger-resources", nodes);
    }

    private static void alterLoggers(ConfigResource loggers) throws Exception {
        tell("level-at-first", level(loggers));
        alter(loggers, "kraft", "DEBUG", AlterConfigOp.OpType.SET);
        tell("level-set", level(loggers));
        alter(loggers, "kraft", "", AlterConfigOp.OpType.DELETE);
        tell("level-deleted", level(loggers));
        tell("level-unknown", failure(() -> alter(loggers, "kraft", "LOUD", AlterConfigOp.OpType.SET)));
        tell("logger-unknown", failure(() -> alter(loggers, "no.such", "INFO", AlterConfigOp.OpType.SET)));
    }

    private static String level(ConfigResource loggers) throws Exception {
        ConfigEntry entry = admin.describeConfigs(List.of(loggers)).all().get().get(loggers).get("kraft");
        return entry.value() + " " + entry.source();
    }

    private static void alter(ConfigResource loggers, String name, String level, AlterConfigOp.OpType operation)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, level), operation);
        admin.incrementalAlterConfigs(Map.of(loggers, List.of(change))).all().get();
    }

    private static void describeProducers(Properties properties, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "value")).get();
            }
        }
        List<String> told = admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers()
            .stream().map(AdminCalls::text).toList();
        tell("producers", told);
    }

    private static String text(ProducerState state) {
        return "epoch=" + state.producerEpoch() + " sequence=" + state.lastSequence()
            + " open=" + state.currentTransactionStartOffset().isPresent();
    }

    private interface Call {
        void run() throws Exception;
    }

    private static String failure(Call call) throws Exception {
        try {
            call.run();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
        return "none";
    }

    private static void tell(String what, Object value) {
        System.out.println(what + "=" + value);
    }
}
