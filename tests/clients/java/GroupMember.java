import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group, as python_member.py tells: arguments are the topic and key=value properties. */
public class GroupMember {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        StringDeserializer text = new StringDeserializer();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, text, text);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                main.interrupt();
            }
        }));
        consumer.subscribe(List.of(arguments[0]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) { }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                System.out.println("rebalanced");
            }
        });
        try {
            read(consumer);
        } catch (WakeupException asked) {
            consumer.close();
            System.out.println("left");
        }
    }

    private static void read(KafkaConsumer<String, String> consumer) {
        String owned = "";
        while (true) {
            Iterable<ConsumerRecord<String, String>> records = consumer.poll(Duration.ofMillis(100));
            String now = consumer.assignment().stream().map(TopicPartition::partition).sorted()
                    .map(String::valueOf).collect(Collectors.joining(","));
            if (!now.equals(owned)) {
                owned = now;
                System.out.println("owns " + owned);
            }
            for (ConsumerRecord<String, String> record : records) {
                System.out.println("read " + record.partition() + " " + record.offset() + " " + record.value());
            }
        }
    }
}
