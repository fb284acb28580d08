package weir.bench;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The benchmark's workloads for Kafka Streams; the Go package bench/internal/work says what they compute and how records are laid out.
 * Arguments: workload, brokers, input topic, output topic, application id, commit interval in milliseconds, number of the input's
 * partitions, state directory.
 */
public final class StreamsApp {
  private static final Serde<byte[]> BYTES = Serdes.ByteArray();
  private static final String STORE = "state";
  private static final long WINDOW_MILLIS = 10_000;

  public static void main(String[] args) throws InterruptedException {
    String workload = args[0], in = args[2], out = args[3];
    int partitions = Integer.parseInt(args[6]);
    StreamsBuilder builder = new StreamsBuilder();
    KStream<byte[], byte[]> values = builder.stream(in, Consumed.with(BYTES, BYTES));
    Repartitioned<byte[], byte[]> byKey = Repartitioned.<byte[], byte[]>as("by-key").withKeySerde(BYTES).withValueSerde(BYTES);
    KStream<byte[], byte[]> results;
    switch (workload) {
      case "passthrough":
        results = values.filter((k, v) -> v[24] != 0);
        break;
      case "window-count":
        builder.addStateStore(store());
        results = values.process(Marks::new).repartition(byKey.withStreamPartitioner(new ByKeyOrToAll()))
            .process(() -> new Windows(partitions), STORE);
        break;
      case "running-count":
        builder.addStateStore(store());
        results = values.map((k, v) -> KeyValue.pair(part(v, 0), part(v, 16))).repartition(byKey).process(Counts::new, STORE);
        break;
      default:
        throw new IllegalArgumentException("there is no workload " + workload);
    }
    results.to(out, Produced.with(BYTES, BYTES));
    KafkaStreams streams = new KafkaStreams(builder.build(), properties(args));
    streams.setUncaughtExceptionHandler(e -> {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);
      return null;
    });
    streams.start();
    Thread.currentThread().join();
  }

  private static Properties properties(String[] args) {
    Properties p = new Properties();
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, args[4]);
    p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args[5]);
    p.put(StreamsConfig.STATE_DIR_CONFIG, args[7]);
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
    p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, "1");
    p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    p.put(StreamsConfig.consumerPrefix("max.poll.records"), "5000");
    p.put(StreamsConfig.consumerPrefix("max.partition.fetch.bytes"), "4194304");
    p.put(StreamsConfig.producerPrefix("batch.size"), "131072");
    p.put(StreamsConfig.producerPrefix("linger.ms"), "10");
    p.put(StreamsConfig.producerPrefix("buffer.memory"), "67108864");
    p.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "60000");
    return p;
  }

  /** RocksDB with a changelog. A cache before it costs more than it spares where keys come at random. */
  private static StoreBuilder<KeyValueStore<Bytes, byte[]>> store() {
    return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.Bytes(), BYTES)
        .withCachingDisabled().withLoggingEnabled(Map.of());
  }

  private static byte[] part(byte[] v, int at) {
    byte[] out = new byte[8];
    System.arraycopy(v, at, out, 0, 8);
    return out;
  }

  private static byte[] numbers(long a, long b) {
    return ByteBuffer.allocate(16).putLong(a).putLong(b).array();
  }

  static final class Counts implements Processor<byte[], byte[], byte[], byte[]> {
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<Bytes, byte[]> counts;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
      counts = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> r) {
      Bytes key = Bytes.wrap(r.key());
      byte[] before = counts.get(key);
      byte[] count = ByteBuffer.allocate(8).putLong(before == null ? 1 : ByteBuffer.wrap(before).getLong() + 1).array();
      counts.put(key, count);
      context.forward(new Record<>(null, ByteBuffer.allocate(32).put(r.key()).put(count).put(r.value()).putLong(0).array(), r.timestamp()));
    }
  }

  /*
   * Kafka Streams takes the time of a re-partitioned topic from whatever record comes first, so that its own windows, after however
   * long a grace period, drop what another partition of the input has still to bring, or never end for want of later records. For the
   * exact result each partition of the input tells all of the re-partitioned topic when it gets to a new window, and a window ends
   * when all partitions are past it.
   */

  /** Makes events of key, window start and sequence number; before the first of a window goes a mark: partition and window start. */
  static final class Marks implements Processor<byte[], byte[], byte[], byte[]> {
    private ProcessorContext<byte[], byte[]> context;
    private long window = Long.MIN_VALUE;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
    }

    @Override
    public void process(Record<byte[], byte[]> r) {
      ByteBuffer v = ByteBuffer.wrap(r.value());
      long start = Math.floorDiv(v.getLong(8), WINDOW_MILLIS) * WINDOW_MILLIS;
      if (start != window) {
        window = start;
        int partition = context.recordMetadata().orElseThrow().partition();
        context.forward(new Record<>(ByteBuffer.allocate(4).putInt(partition).array(), numbers(start, 0), r.timestamp()));
      }
      context.forward(new Record<>(part(r.value(), 0), numbers(start, v.getLong(16)), r.timestamp()));
    }
  }

  static boolean isMark(byte[] key) {
    return key.length == 4;
  }

  static final class ByKeyOrToAll implements StreamPartitioner<byte[], byte[]> {
    @Override
    public Optional<Set<Integer>> partitions(String topic, byte[] key, byte[] value, int n) {
      if (isMark(key)) {
        return Optional.of(IntStream.range(0, n).boxed().collect(Collectors.toSet()));
      }
      return Optional.of(Collections.singleton(Utils.toPositive(Utils.murmur2(key)) % n));
    }
  }

  /** The store has the count and sum of each window start and key, and beside them the last mark of each partition of the input. */
  static final class Windows implements Processor<byte[], byte[], byte[], byte[]> {
    private final int partitions;
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<Bytes, byte[]> totals;
    private long done; // earlier windows are removed; RocksDB need not look for them

    Windows(int partitions) {
      this.partitions = partitions;
    }

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
      totals = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> r) {
      ByteBuffer v = ByteBuffer.wrap(r.value());
      if (isMark(r.key())) {
        totals.put(markOf(ByteBuffer.wrap(r.key()).getInt()), r.value());
        end(r.timestamp());
        return;
      }
      Bytes at = Bytes.wrap(ByteBuffer.allocate(16).putLong(v.getLong(0)).put(r.key()).array());
      byte[] before = totals.get(at);
      ByteBuffer total = before == null ? ByteBuffer.allocate(16) : ByteBuffer.wrap(before);
      totals.put(at, numbers(total.getLong(0) + 1, total.getLong(8) + v.getLong(8)));
    }

    /** Marks sort after all windows. */
    private static Bytes markOf(int partition) {
      return Bytes.wrap(numbers(Long.MAX_VALUE, partition));
    }

    /** Puts out the windows that all partitions are past. Entries are removed afterwards, not under the iterator. */
    private void end(long timestamp) {
      long open = Long.MAX_VALUE;
      for (int partition = 0; partition < partitions; partition++) {
        byte[] mark = totals.get(markOf(partition));
        if (mark == null) {
          return;
        }
        open = Math.min(open, ByteBuffer.wrap(mark).getLong());
      }
      List<Bytes> ended = new ArrayList<>();
      try (KeyValueIterator<Bytes, byte[]> each = totals.range(Bytes.wrap(numbers(done, 0)), Bytes.wrap(numbers(open - 1, -1)))) {
        while (each.hasNext()) {
          KeyValue<Bytes, byte[]> entry = each.next();
          ended.add(entry.key);
          ByteBuffer at = ByteBuffer.wrap(entry.key.get());
          byte[] row = ByteBuffer.allocate(32).putLong(at.getLong(8)).putLong(at.getLong(0)).put(entry.value).array();
          context.forward(new Record<>(null, row, timestamp));
        }
      }
      ended.forEach(totals::delete);
      done = open;
    }
  }
}
