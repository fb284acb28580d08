// Package version holds the program's version and the range of protocol versions it speaks.
package version

// ProtocolMin and ProtocolMax bound the versions of the conversations between job binary, TaskManager and JobManager that this
// program understands, inclusive.
const (
	ProtocolMin = 1
	ProtocolMax = 4
)

// ProtocolEncrypt is the first version in which workers can encrypt their data connections. A worker that cannot is refused where it
// should, as it would send records in clear.
const ProtocolEncrypt = 2

// ProtocolHeartbeat is the first version in which workers send heartbeats. The silence of an older one means nothing.
const ProtocolHeartbeat = 3

// ProtocolSlots is the first version in which workers are told where the others listen slot by slot, in place of task by task.
const ProtocolSlots = 4

// Version is the release, set by the linker; "dev" in a plain build.
var Version = "dev"

// Common returns the highest protocol version that both sides speak.
func Common(theirMin, theirMax uint32) (uint32, bool) {
	v := min(uint32(ProtocolMax), theirMax)
	return v, v >= max(uint32(ProtocolMin), theirMin)
}
