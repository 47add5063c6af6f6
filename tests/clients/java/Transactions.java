import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A program with transactions, as python_program.py tells: `commands` or `process`, then key=value settings. */
public class Transactions {
    private static final int CANNOT_GO_ON = 3;

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap"));
        properties.put("transactional.id", settings.get("transactional_id"));
        properties.put("transaction.timeout.ms", settings.get("transaction_timeout_ms"));
        StringSerializer text = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties, text, text);
        if (arguments[0].equals("commands")) {
            commands(producer);
        } else {
            process(producer, settings);
        }
    }

    private static void commands(KafkaProducer<String, String> producer) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                act(producer, line.split(" ", 4));
                System.out.println("done");
            } catch (ExecutionException error) {
                System.out.println("failed " + error.getCause().getClass().getSimpleName());
            } catch (KafkaException error) {
                System.out.println("failed " + error.getClass().getSimpleName());
            }
        }
        producer.close(Duration.ZERO);
    }

    private static void act(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init": producer.initTransactions(); break;
            case "begin": producer.beginTransaction(); break;
            case "send":
                producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), null, words[3])).get();
                break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static void process(KafkaProducer<String, String> producer, Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap"));
        properties.put("group.id", settings.get("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", "read_committed");
        properties.put("session.timeout.ms", settings.get("session_timeout_ms"));
        properties.put("heartbeat.interval.ms", Integer.parseInt(settings.get("session_timeout_ms")) / 10);
        properties.put("max.poll.records", "50");
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
        try {
            producer.initTransactions();
            consumer.subscribe(List.of(settings.get("input")));
            while (true) {
                step(producer, consumer, settings.get("output"));
            }
        } catch (WakeupException asked) {
            consumer.close();
        } catch (KafkaException error) {
            error.printStackTrace();
            consumer.close();
            Runtime.getRuntime().halt(CANNOT_GO_ON);
        }
    }

    private static void step(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            String output) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(output, record.partition(), null, record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
        System.out.println("committed " + records.count());
    }
}
