// Package hdfs keeps checkpoints on HDFS, through github.com/colinmarc/hdfs.
//
// The client library's rename overwrites files, and HDFS has no other operation that gives a complete file its name only if that is free.
// A directory that is not empty, though, is never overwritten by a rename. So an object is a directory with the one file .weir-object
// in it: written below a temporary name, checked, and renamed in one step. Of two writers of one name the second is refused by the
// NameNode. An object costs two inodes.
//
// A client has one connection to the NameNode, on which requests take turns; there is a small pool of them. A client whose connection
// fails or whose caller gives up is thrown away with all of its connections. What failed for want of an answer is tried again, a Put as
// far as its content can be read again. Data is acknowledged by all DataNodes of the pipeline before a Put returns; whether they have it
// on disk then is their setting (dfs.datanode.synconclose). HDFS checks checksums of what is written and read.
package hdfs
