import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;

/**
 * Kafka Streams with exactly_once_v2, one thread and a trivial transform. It takes the arguments of assignment.py, and
 * prints the same line after each commit.
 */
public final class KafkaStreamsLoop {
    /** Only the one stream thread counts and commits. */
    private static long records = 0;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Math.round(1000 * Double.parseDouble(arguments[5])));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[7]);
        for (int at = 8; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        var bytes = Serdes.ByteArray();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(bytes, bytes))
            .mapValues(KafkaStreamsLoop::copyValue)
            .to(arguments[3], Produced.with(bytes, bytes));
        new KafkaStreams(builder.build(), settings, new ReportingClients()).start();
    }

    private static byte[] copyValue(byte[] value) {
        records++;
        return value;
    }

    private static final class ReportingClients extends DefaultKafkaClientSupplier {
        @Override
        public Producer<byte[], byte[]> getProducer(Map<String, Object> settings) {
            return new ReportingProducer(settings);
        }
    }

    private static final class ReportingProducer extends KafkaProducer<byte[], byte[]> {
        private long beganNs = 0;
        private long reported = 0;

        ReportingProducer(Map<String, Object> settings) {
            super(settings, new ByteArraySerializer(), new ByteArraySerializer());
        }

        /** A commit begins with it. */
        @Override
        public void flush() {
            beganNs = beganNs == 0 ? System.nanoTime() : beganNs;
            super.flush();
        }

        @Override
        public void sendOffsetsToTransaction(Map<TopicPartition, OffsetAndMetadata> offsets, ConsumerGroupMetadata group) {
            beganNs = beganNs == 0 ? System.nanoTime() : beganNs;
            super.sendOffsetsToTransaction(offsets, group);
        }

        @Override
        public void commitTransaction() {
            super.commitTransaction();
            long nowNs = System.nanoTime();
            var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            System.out.printf("commit %f %f %d %f%n", nowNs / 1e9, system.getProcessCpuTime() / 1e9,
                records - reported, (nowNs - beganNs) / 1e9);
            reported = records;
            beganNs = 0;
        }
    }
}
