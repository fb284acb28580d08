// Package peers runs the benchmark's workloads on Apache Flink and Kafka Streams, so that they can be measured beside Weir.
//
// The jars come from Maven once and stay in the user's cache directory; the jobs are compiled for each benchmark. A JVM dies with the
// benchmark on Linux. An [Engine] may start runs one after the other; a [Run] is for one goroutine.
package peers
