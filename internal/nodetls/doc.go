// Package nodetls secures the connections between nodes, and those of users to JobManagers, with TLS 1.3 and certificates from files.
//
// A [Keeper] holds what the files said when they were last sound. Each handshake looks whether they have changed and uses what they
// say now; files that make no sense together, such as a new certificate beside an old key, leave what was there in force and are
// warned of. Connections that stand are not touched.
//
// Who is at the other end follows from the CA: a certificate signed by one of tls_ca belongs to a node, one signed by one of user_ca
// to a user. Whoever dials also checks that the certificate is for the host that it dialed.
//
// Errors of a connection that does not come about wrap one of the package's sentinels and are worded for people, on both sides: also
// those of the plain credentials, for a peer that uses TLS alone or not at all.
//
// A Keeper may be used concurrently and has no goroutine of its own; [Keeper.Watch] is for its owner to run.
package nodetls
