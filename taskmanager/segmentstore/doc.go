// Package segmentstore keeps state files on checkpoint storage and verified copies of them on local disk.
//
// A [Store] uploads a file whole and takes it over into its cache, and fetches a file by downloading it once however many callers
// ask. What Fetch returns has the size and the CRC32C of its segment: a file is read whole when it is uploaded, downloaded, or
// met for the first time after a boot of the machine; afterwards a sidecar with its size, inode, modification time and checksum
// vouches for it, so that a restore opens local files unread. Copies are read again in the background at a low rate, and before their next
// use when a [Scope] distrusts them; a damaged one is replaced from storage.
//
// A copy is found by the SHA-256 of its content where the segment tells it, so that a savepoint's file with a name of its own is found as
// what it was copied from; else by its name, which is written once.
//
// The cache is bounded. The least recently used files go first, and never one that a [Scope] holds, which is from its upload or fetch
// until the scope is told that no snapshot needs it any more. So what the newest checkpoints need stays, also beyond the bound. A process
// that has a file open or mapped keeps it: the store only unlinks, it never truncates or overwrites.
//
// All methods may be called concurrently. The store holds no lock while it reads, writes or waits for storage.
package segmentstore
