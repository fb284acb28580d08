// Package hdfstest runs a real one-node HDFS, NameNode and DataNode in one Java process, for tests.
//
// The jars are Hadoop's own, fetched with Maven once for a machine. A missing Java or Maven is an error, never a skipped test;
// WEIR_TEST_HDFS=host:port uses a NameNode of yours. The process dies with the one that started it on Linux.
package hdfstest
