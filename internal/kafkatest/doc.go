// Package kafkatest runs a real Apache Kafka broker for tests, benchmarks and demonstrations, and looks at it from outside.
//
// [Start] brings up one KRaft node on loopback with its data in a directory of its own; [Shared] gives the tests of one binary a
// broker in common, which is taken down by [Main]. The jars come from Maven once and stay in the user's cache directory, together
// with a class-data archive that shortens the start to about two seconds. Java or Maven missing is an error, never a skipped test.
//
// A broker dies with the process that started it on Linux. All methods are safe for concurrent use unless they say otherwise.
package kafkatest
