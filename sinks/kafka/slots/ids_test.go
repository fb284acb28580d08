package slots_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

func TestTransactionalIDs(t *testing.T) {
	sc := sinks.Context{ClusterID: "c", JobID: "j", UID: "out"}
	require.Equal(t, "weir.c.j.out.3.1.0", slots.NewScheme("weir", sc).ID(3, 1, 0))
	sc.UID = strings.Repeat("x", 300)
	long := slots.NewScheme("weir", sc).ID(3, 1, 0)
	require.Less(t, len(long), 100)
	require.True(t, strings.HasPrefix(long, "weir."))
	require.True(t, strings.HasSuffix(long, ".3.1.0"))
	sc.UID += "y"
	require.NotEqual(t, long, slots.NewScheme("weir", sc).ID(3, 1, 0))
}

func TestShareOfFormerIDs(t *testing.T) {
	s := slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "j", UID: "u"})
	all := map[string]int{}
	for subtask := range 2 {
		for _, id := range s.Share(operator.Scope{
			Subtask: subtask, Parallelism: 2, Attempts: []operator.FormerAttempt{{Attempt: 1, Parallelism: 5, Slots: 3}, {Attempt: 2, Parallelism: 1, Slots: 2}},
		}) {
			all[id]++
		}
	}
	require.Len(t, all, 5*3+1*2)
	for id, n := range all {
		require.Equal(t, 1, n, id)
	}
}

func TestIDsAreTakenApart(t *testing.T) {
	s := slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "j", UID: "out.1"})
	attempt, subtask, slot, ok := s.Parse(s.ID(12, 3, 4))
	require.True(t, ok)
	require.Equal(t, []int{12, 3, 4}, []int{int(attempt), subtask, slot})
	job, ok := s.Job(slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "other", UID: "a.b"}).ID(1, 2, 3))
	require.True(t, ok)
	require.Equal(t, "other", job)
	for _, foreign := range []string{
		"", "mine", "weir.c.j.out%2E1", "weir.c.j.out%2E1.1.2", "weir.c.j.out%2E1.1.2.3.4", "weir.c.j.out%2E1.1.x.3", "weir.c.j.out%2E1.1.-2.3",
		"weir.c.j.out%2E1.1.+2.3", "weir.c.j.out%2E1.1.02.3", "weir.c.j.out%2E10.1.2.3", "weir.c.j.out.1.1.2.3", "weir.c.j.out%2e1.1.2.3",
	} {
		_, _, _, ok := s.Parse(foreign)
		require.False(t, ok, foreign)
	}
	for _, foreign := range []string{"", "weir.d.j.u.1.2.3", "weir.c.", "other.c.j.u.1.2.3", "weir.c.0123456789abcdef.1"} {
		_, ok := s.Job(foreign)
		require.False(t, ok, foreign)
	}
}

// place is all that makes an id.
type place struct {
	prefix, cluster, job, uid string
	attempt                   uint64
	subtask, slot             int
}

func (p place) scheme() slots.Scheme {
	return slots.NewScheme(p.prefix, sinks.Context{ClusterID: p.cluster, JobID: p.job, UID: p.uid})
}

// TestNoTwoPlacesShareAnID: whatever prefixes and uids users choose, such as one that holds another's separators, a whole id, or a hash.
func TestNoTwoPlacesShareAnID(t *testing.T) {
	const (
		cluster = "01J0000000000000000000000C"
		job     = "01J0000000000000000000000J"
	)
	hash := strings.TrimPrefix(slots.NewScheme("", sinks.Context{ClusterID: cluster, JobID: job, UID: strings.Repeat("x", 300)}).ID(1, 1, 1), ".")
	hash, _, _ = strings.Cut(hash, ".")
	// The hash as a uid, behind what the other one has as its prefix.
	hashed := place{"weir." + cluster + "." + job, cluster, job, strings.Repeat("x", 300), 1, 1, 1}
	require.NotEqual(t, hashed.scheme().ID(1, 1, 1), place{"weir", cluster, job, hash, 1, 1, 1}.scheme().ID(1, 1, 1))
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
		"", "weir", "x", ".", "#", "%", "%2E", "1", ".1", cluster, job, "." + cluster + "." + job, hash, hash[1:], strings.Repeat("x", 300),
	}), 0, 4), func(parts []string) string { return strings.Join(parts, "") })
	places := rapid.Custom(func(t *rapid.T) place {
		return place{
			prefix: text.Draw(t, "prefix"), cluster: rapid.SampledFrom([]string{cluster, job}).Draw(t, "cluster"),
			job: rapid.SampledFrom([]string{cluster, job}).Draw(t, "job"), uid: text.Draw(t, "uid"),
			attempt: rapid.Uint64Range(1, 12).Draw(t, "attempt"), subtask: rapid.IntRange(0, 12).Draw(t, "subtask"), slot: rapid.IntRange(0, 2).Draw(t, "slot"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		of := map[string]place{}
		for _, p := range rapid.SliceOfN(places, 2, 30).Draw(t, "places") {
			id := p.scheme().ID(p.attempt, p.subtask, p.slot)
			if other, taken := of[id]; taken {
				require.Equal(t, other, p, "both have the id %s", id)
			}
			of[id] = p
			for seen, q := range of {
				// A sink takes an id for its own only when it is.
				attempt, subtask, slot, own := p.scheme().Parse(seen)
				same := p
				same.attempt, same.subtask, same.slot = q.attempt, q.subtask, q.slot
				require.Equal(t, same == q, own, "%s of %+v", seen, p)
				if own {
					require.Equal(t, place{p.prefix, p.cluster, p.job, p.uid, attempt, subtask, slot}, q)
				}
			}
		}
	})
}
