// Package journal is the file in which a sink's driver keeps the records of one transaction.
//
// A file is a header, the records, each after its length plus one, and an end: a zero and the number of records. Lengths are unsigned
// varints. The checksum (CRC32C) and the size of the whole file are kept with its name, and compared while it is read. What is in a record
// is the sink's business.
//
// A [Writer] holds a bounded buffer. A file that fits into it need not touch a disk. Writers are for one goroutine at a time.
package journal
