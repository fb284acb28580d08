package weir.bench;

import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The benchmark's workloads as Flink jobs; the Go package bench/internal/work says what they compute and how records are laid out.
 * Arguments: workload, brokers, input topic, output topic, checkpoint interval in milliseconds.
 */
public final class FlinkJob {
  private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
  private static final TypeInformation<Tuple2<Long, Long>> PAIR = Types.TUPLE(Types.LONG, Types.LONG);

  public static void main(String[] args) throws Exception {
    String workload = args[0], brokers = args[1], in = args[2], out = args[3];
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.getConfig().enableObjectReuse();
    env.enableCheckpointing(Long.parseLong(args[4]), CheckpointingMode.EXACTLY_ONCE);
    DataStream<byte[]> results;
    switch (workload) {
      case "passthrough":
        results = env.fromSource(source(brokers, in, out, new Values()), WatermarkStrategy.noWatermarks(), "in").filter(v -> v[24] != 0);
        break;
      case "json-projection":
        results = env.fromSource(source(brokers, in, out, new Values()), WatermarkStrategy.noWatermarks(), "in")
            .map(new Projection()).returns(BYTES);
        break;
      case "window-count":
        // A record's timestamp in Kafka is its event time.
        results = env.fromSource(source(brokers, in, out, new Events()),
                WatermarkStrategy.<Tuple2<Long, Long>>forMonotonousTimestamps().withTimestampAssigner((e, millis) -> millis), "in")
            .keyBy(e -> e.f0, Types.LONG).window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
            .aggregate(new CountAndSum(), new WindowRow(), PAIR, PAIR, BYTES);
        break;
      case "running-count":
        results = env.fromSource(source(brokers, in, out, new Events()), WatermarkStrategy.noWatermarks(), "in")
            .keyBy(e -> e.f0, Types.LONG).process(new RunningCount()).returns(BYTES);
        break;
      default:
        throw new IllegalArgumentException("there is no workload " + workload);
    }
    results.sinkTo(KafkaSink.<byte[]>builder().setBootstrapServers(brokers)
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix(out)
        .setProperty("transaction.timeout.ms", "600000")
        .setProperty("batch.size", "131072").setProperty("linger.ms", "10").setProperty("buffer.memory", "67108864")
        .setRecordSerializer(new Output(out)).build());
    env.execute(out);
  }

  private static <T> KafkaSource<T> source(String brokers, String in, String group, KafkaRecordDeserializationSchema<T> schema) {
    return KafkaSource.<T>builder().setBootstrapServers(brokers).setTopics(in).setGroupId(group)
        .setStartingOffsets(OffsetsInitializer.earliest()).setDeserializer(schema)
        .setProperty("max.poll.records", "5000").setProperty("max.partition.fetch.bytes", "4194304").build();
  }

  private static byte[] row(long a, long b, long c, long d) {
    return ByteBuffer.allocate(32).putLong(a).putLong(b).putLong(c).putLong(d).array();
  }

  static final class Values implements KafkaRecordDeserializationSchema<byte[]> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> r, Collector<byte[]> to) {
      to.collect(r.value());
    }

    @Override
    public TypeInformation<byte[]> getProducedType() {
      return BYTES;
    }
  }

  /** Key and sequence number. Object reuse lets one pair serve all records: the exchange copies it into its buffer. */
  static final class Events implements KafkaRecordDeserializationSchema<Tuple2<Long, Long>> {
    private final Tuple2<Long, Long> event = new Tuple2<>();

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> r, Collector<Tuple2<Long, Long>> to) {
      ByteBuffer v = ByteBuffer.wrap(r.value());
      event.setFields(v.getLong(0), v.getLong(16));
      to.collect(event);
    }

    @Override
    public TypeInformation<Tuple2<Long, Long>> getProducedType() {
      return PAIR;
    }
  }

  static final class Output implements KafkaRecordSerializationSchema<byte[]> {
    private final String topic;

    Output(String topic) {
      this.topic = topic;
    }

    @Override
    public ProducerRecord<byte[], byte[]> serialize(byte[] v, KafkaSinkContext context, Long timestamp) {
      return new ProducerRecord<>(topic, v);
    }
  }

  static final class CountAndSum implements AggregateFunction<Tuple2<Long, Long>, Tuple2<Long, Long>, Tuple2<Long, Long>> {
    @Override
    public Tuple2<Long, Long> createAccumulator() {
      return Tuple2.of(0L, 0L);
    }

    @Override
    public Tuple2<Long, Long> add(Tuple2<Long, Long> event, Tuple2<Long, Long> total) {
      total.setFields(total.f0 + 1, total.f1 + event.f1);
      return total;
    }

    @Override
    public Tuple2<Long, Long> getResult(Tuple2<Long, Long> total) {
      return total;
    }

    @Override
    public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
      return Tuple2.of(a.f0 + b.f0, a.f1 + b.f1);
    }
  }

  static final class WindowRow extends ProcessWindowFunction<Tuple2<Long, Long>, byte[], Long, TimeWindow> {
    @Override
    public void process(Long key, Context context, Iterable<Tuple2<Long, Long>> totals, Collector<byte[]> to) {
      Tuple2<Long, Long> total = totals.iterator().next();
      to.collect(row(key, context.window().getStart(), total.f0, total.f1));
    }
  }

  static final class RunningCount extends KeyedProcessFunction<Long, Tuple2<Long, Long>, byte[]> {
    private transient ValueState<Long> count;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public void processElement(Tuple2<Long, Long> event, Context context, Collector<byte[]> to) throws IOException {
      Long before = count.value();
      long n = before == null ? 1 : before + 1;
      count.update(n);
      to.collect(row(event.f0, n, event.f1, 0));
    }
  }

  public static final class Bid {
    public long auction, bidder, price;
    public String channel, url;
    public long dateTime;
    public String extra;
  }

  @JsonPropertyOrder({"auction", "bidder", "cents", "dateTime"})
  public static final class Slim {
    public long auction, bidder, cents, dateTime;
  }

  static final class Projection extends RichMapFunction<byte[], byte[]> {
    private transient ObjectReader reader;
    private transient ObjectWriter writer;
    private transient Slim slim;

    @Override
    public void open(OpenContext context) {
      ObjectMapper mapper = new ObjectMapper();
      reader = mapper.readerFor(Bid.class);
      writer = mapper.writerFor(Slim.class);
      slim = new Slim();
    }

    @Override
    public byte[] map(byte[] v) throws IOException {
      Bid bid = reader.readValue(v);
      slim.auction = bid.auction;
      slim.bidder = bid.bidder;
      slim.cents = bid.price * 908 / 1000;
      slim.dateTime = bid.dateTime;
      return writer.writeValueAsBytes(slim);
    }
  }
}
