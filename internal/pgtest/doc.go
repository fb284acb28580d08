// Package pgtest runs a real PostgreSQL server for tests.
//
// [Start] initialises a data directory of its own and brings a server up on loopback; [Shared] gives the tests of one binary a server in
// common, which is taken down by [Close]. [Server.Database] makes a database for one test. The programs are those that are installed:
// in the PATH, or where Debian's packages put them. A missing PostgreSQL is an error, never a skipped test;
// WEIR_TEST_POSTGRES=URL uses a server of yours.
//
// PostgreSQL refuses to run as root; for root it runs as the user postgres or nobody. A server dies with the process that started it on
// Linux. All methods are safe for concurrent use unless they say otherwise.
package pgtest
