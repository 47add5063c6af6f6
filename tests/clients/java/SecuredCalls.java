import java.io.FileReader;
import java.io.Reader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a client may do: arguments are a topic and files with a client's properties, one a client. Each client produces,
 * consumes in a group, commits a transaction and administers; a line tells what came of each, done or the exception.
 */
public class SecuredCalls {
    private static final Duration PATIENCE = Duration.ofSeconds(90);

    public static void main(String[] arguments) throws Exception {
        List<Thread> clients = new ArrayList<>();
        for (String file : List.of(arguments).subList(1, arguments.length)) {
            Properties properties = new Properties();
            try (Reader reader = new FileReader(file)) {
                properties.load(reader);
            }
            String token = properties.getProperty("sasl.oauthbearer.token.endpoint.url");
            if (token != null) {
                tokensFrom(token, properties);
            }
            properties.putIfAbsent("default.api.timeout.ms", "90000");
            properties.putIfAbsent("max.block.ms", "90000");
            String name = Path.of(file).getFileName().toString().replace(".properties", "");
            clients.add(new Thread(() -> client(name, arguments[0], properties)));
        }
        clients.forEach(Thread::start);
        for (Thread client : clients) {
            client.join();
        }
    }

    /** Has the client take its token from a file, by the handler that this line of Kafka has. */
    private static void tokensFrom(String url, Properties properties) throws Exception {
        String allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls";
        System.setProperty(allowed, System.getProperty(allowed) == null ? url : System.getProperty(allowed) + "," + url);
        String folder = "org.apache.kafka.common.security.oauthbearer.";
        String name = "OAuthBearerLoginCallbackHandler";
        Class<?> handler;
        try {
            handler = Class.forName(folder + name);
        } catch (ClassNotFoundException older) {
            handler = Class.forName(folder + "secured." + name);
        }
        properties.put("sasl.login.callback.handler.class", handler.getName());
    }

    private static void client(String name, String topic, Properties properties) {
        tell(name, "produce", () -> produce(topic, properties));
        tell(name, "consume", () -> consume(topic, name, properties));
        tell(name, "transact", () -> transact(topic, name, properties));
        tell(name, "create-topic", () -> createTopic(topic + "-of-" + name, properties));
        tell(name, "describe-acls", () -> {
            try (Admin admin = Admin.create(properties)) {
                admin.describeAcls(AclBindingFilter.ANY).values().get();
            }
        });
    }

    private static void produce(String topic, Properties properties) throws Exception {
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "value")).get();
        }
    }

    private static void consume(String topic, String group, Properties given) {
        Properties properties = copy(given, "group.id", group, "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no record came");
                }
            }
            consumer.commitSync();
        }
    }

    private static void transact(String topic, String id, Properties given) throws Exception {
        Properties properties = copy(given, "transactional.id", id);
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "in a transaction")).get();
            Map<TopicPartition, OffsetAndMetadata> offsets =
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
            producer.sendOffsetsToTransaction(
                offsets, new org.apache.kafka.clients.consumer.ConsumerGroupMetadata(id + "-in-transactions"));
            producer.commitTransaction();
        }
    }

    private static void createTopic(String topic, Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
    }

    private static Properties copy(Properties given, String... more) {
        Properties made = new Properties();
        made.putAll(given);
        for (int index = 0; index < more.length; index += 2) {
            made.put(more[index], more[index + 1]);
        }
        return made;
    }

    private interface Call {
        void run() throws Exception;
    }

    /** The name of the most telling exception: the first that is not only a wrapper. */
    private static void tell(String name, String what, Call call) {
        String outcome = "done";
        try {
            call.run();
        } catch (Exception error) {
            Throwable cause = error;
            while (cause.getCause() != null && wraps(cause)) {
                cause = cause.getCause();
            }
            outcome = cause.getClass().getSimpleName();
        }
        System.out.println(name + " " + what + "=" + outcome);
    }

    private static boolean wraps(Throwable error) {
        return error instanceof ExecutionException || error.getClass() == KafkaException.class;
    }
}
