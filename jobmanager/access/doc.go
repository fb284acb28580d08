// Package access decides who may call the gRPC services of a JobManager.
//
// What a service demands is in one table; a service that is not in it is refused. A caller proves to be a node or a user by a
// certificate, see nodetls, or a user by a token in the metadata of the call. Without TLS there are no nodes to tell apart, so that what
// is for nodes is open to whoever reaches the listener, and what is for users too, unless tokens are set.
//
// Of tokens only hashes are kept. Neither errors nor logs hold one.
package access
