import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A stream beyond the sessions of its connections: arguments are a topic, a file with properties, a number of records
 * and of re-authentications. It sends and reads until both are reached, and tells what came of it.
 */
public class SecuredStream {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        long records = Long.parseLong(arguments[2]);
        double renewals = Double.parseDouble(arguments[3]);
        Properties properties = new Properties();
        try (Reader reader = new FileReader(arguments[1])) {
            properties.load(reader);
        }
        AtomicLong failed = new AtomicLong();
        AtomicLong acknowledged = new AtomicLong();
        long sent = 0;
        long read = 0;
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (sent < records || renewed(producer.metrics()) < renewals || renewed(consumer.metrics()) < renewals) {
                if (System.nanoTime() > deadline) {
                    break;
                }
                for (int number = 0; number < 20; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, "value"), (metadata, error) ->
                        (error == null ? acknowledged : failed).incrementAndGet());
                    sent++;
                }
                read += consumer.poll(Duration.ofMillis(10)).count();
            }
            producer.flush();
            while (read < sent && System.nanoTime() < deadline) {
                read += consumer.poll(Duration.ofMillis(100)).count();
            }
            System.out.println("sent=" + sent);
            System.out.println("acknowledged=" + acknowledged);
            System.out.println("failed=" + failed);
            System.out.println("read=" + read);
            System.out.println("renewed-by-producer=" + (long) renewed(producer.metrics()));
            System.out.println("renewed-by-consumer=" + (long) renewed(consumer.metrics()));
            System.out.println("failed-authentications=" + (long)
                (total(producer.metrics(), "failed-reauthentication-total")
                    + total(consumer.metrics(), "failed-reauthentication-total")
                    + total(producer.metrics(), "failed-authentication-total")
                    + total(consumer.metrics(), "failed-authentication-total")));
        }
    }

    private static double renewed(Map<MetricName, ? extends Metric> metrics) {
        return total(metrics, "successful-reauthentication-total");
    }

    private static double total(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
            .filter(entry -> entry.getKey().name().equals(name) && !entry.getKey().tags().containsKey("node-id"))
            .mapToDouble(entry -> (Double) entry.getValue().metricValue()).sum();
    }
}
