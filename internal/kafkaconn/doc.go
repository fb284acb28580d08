// Package kafkaconn is what the Kafka source and the Kafka sink share in meeting a cluster: reaching it within a bound, finding topics,
// and errors that name the broker or topic and the way out.
//
// All functions are safe for concurrent use. They keep no state.
package kafkaconn
