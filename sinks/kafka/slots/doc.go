// Package slots is the pure core of the transactional ids of the Kafka sink: how they are named, which are in use, and which a restore
// has to fence. It does no I/O and knows no clock. What it promises is listed at [Pool]; nothing here is safe for concurrent use.
package slots
