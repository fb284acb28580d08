package e2e_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
)

const (
	jobManager  = localcluster.JobManager
	taskManager = localcluster.TaskManager
	worker      = localcluster.Worker
	// leaderAndWorkers: the leader dies at the point, and all workers before another one leads.
	leaderAndWorkers localcluster.Role = "jobmanager-and-workers"
	// localRun is a program that runs its job by itself.
	localRun localcluster.Role = "local"
)

// when says what brings a process to a point.
type when uint8

const (
	always     when = iota // a job that takes checkpoints comes by
	restarts               // an attempt that restores a checkpoint comes by
	takeovers              // a leader that takes over comes by
	savepoints             // a savepoint comes by
)

// cell is a point and a role that can die there.
type cell struct {
	point faultpoint.Point
	role  localcluster.Role
	when  when
	// fails tells that the code can also meet an error there.
	fails bool
}

// leaves reports whether the point is one at which something is on its way: a process that dies there takes it along or not.
func (c cell) leaves() bool {
	return strings.HasSuffix(string(c.point), "-sent") && c.point != faultpoint.EndTxnSent && c.point != faultpoint.BarrierSent
}

func (c cell) String() string { return fmt.Sprintf("%s/%s", c.point, c.role) }

var crashCells = []cell{
	{faultpoint.TriggerReceived, worker, always, false},
	{faultpoint.BarrierSent, worker, always, false},
	{faultpoint.Aligning, worker, always, false},
	{faultpoint.Aligned, worker, always, false},
	{faultpoint.PrepareDue, worker, always, true},
	{faultpoint.Flushed, worker, always, false},
	{faultpoint.Prepared, worker, always, false},
	{faultpoint.StateDue, worker, always, true},
	{faultpoint.StateWritten, worker, always, false},
	{faultpoint.UploadDue, taskManager, always, true},
	{faultpoint.PutDue, taskManager, always, true},
	{faultpoint.PutSynced, taskManager, always, false},
	{faultpoint.PutNamed, taskManager, always, false},
	{faultpoint.Uploaded, taskManager, always, false},
	{faultpoint.StateUploaded, worker, always, false},
	{faultpoint.AckDue, worker, always, false},
	{faultpoint.AckSent, worker, always, false},
	{faultpoint.AckAtTaskManager, taskManager, always, false},
	{faultpoint.AckRelayed, taskManager, always, false},
	{faultpoint.TriggerSent, jobManager, always, false},
	{faultpoint.AckReceived, jobManager, always, false},
	{faultpoint.AllAcknowledged, jobManager, always, false},
	{faultpoint.AllAcknowledged, leaderAndWorkers, always, false},
	{faultpoint.PutDue, jobManager, always, true},
	{faultpoint.PutSynced, jobManager, always, false},
	{faultpoint.PutNamed, jobManager, always, false},
	{faultpoint.MetadataWritten, jobManager, always, false},
	{faultpoint.MetadataWritten, leaderAndWorkers, always, false},
	{faultpoint.CompletionDue, jobManager, always, false},
	{faultpoint.CompletionDue, leaderAndWorkers, always, false},
	{faultpoint.CompletionLogged, jobManager, always, false},
	{faultpoint.CompletionLogged, leaderAndWorkers, always, false},
	{faultpoint.NoticeSent, jobManager, always, false},
	{faultpoint.NoticeSent, leaderAndWorkers, always, false},
	{faultpoint.NoticeAtTaskManager, taskManager, always, false},
	{faultpoint.NoticeRelayed, taskManager, always, false},
	{faultpoint.NoticeReceived, worker, always, false},
	{faultpoint.CommitDue, worker, always, true},
	{faultpoint.OwnCommitDue, worker, always, true},
	{faultpoint.EndTxnSent, worker, always, false},
	{faultpoint.EndTxnAnswered, worker, always, false},
	{faultpoint.Committed, worker, always, false},
	{faultpoint.CommitAckSent, worker, always, false},
	{faultpoint.CommitAckAtTaskManager, taskManager, always, false},
	{faultpoint.CommitAcked, jobManager, always, false},
	{faultpoint.SettledLogged, jobManager, savepoints, false},
	{faultpoint.IDReleased, worker, always, false},
	{faultpoint.DeleteDue, jobManager, always, true},
	{faultpoint.FilesDeleted, jobManager, always, false},
	{faultpoint.GarbageDeleted, jobManager, always, false},
	{faultpoint.GarbageDropped, jobManager, always, false},

	{faultpoint.IDsReserved, jobManager, takeovers, false},
	{faultpoint.TakenOver, jobManager, takeovers, false},
	{faultpoint.FailureLogged, jobManager, restarts, false},
	{faultpoint.AttemptLogged, jobManager, restarts, false},
	{faultpoint.WorkerOrdered, jobManager, restarts, false},
	{faultpoint.OrderReceived, taskManager, restarts, false},
	{faultpoint.WorkerLaunched, taskManager, restarts, false},
	{faultpoint.RestoreDue, worker, restarts, false},
	{faultpoint.FetchDue, taskManager, restarts, true},
	{faultpoint.OpenDue, taskManager, restarts, true},
	{faultpoint.OpenDue, jobManager, takeovers, true},
	{faultpoint.Fetched, taskManager, restarts, false},
	{faultpoint.RestoreRead, worker, restarts, false},
	{faultpoint.IDInitDue, worker, restarts, false},
	{faultpoint.IDInitialised, worker, restarts, false},
	{faultpoint.RecoverDue, worker, restarts, true},
	{faultpoint.EndTxnDue, worker, restarts, true},
	{faultpoint.RecoveredOne, worker, restarts, false},
	{faultpoint.Recovered, worker, restarts, false},
	{faultpoint.PreparedDue, worker, restarts, false},
	{faultpoint.StartLogged, jobManager, restarts, false},
	{faultpoint.StartSent, jobManager, restarts, false},
	{faultpoint.FenceDue, worker, restarts, true},
	{faultpoint.FencedOne, worker, restarts, false},
	{faultpoint.Fenced, worker, restarts, false},
	{faultpoint.StartedDue, worker, restarts, false},
	{faultpoint.AllStarted, jobManager, restarts, false},
	{faultpoint.FencedLogged, jobManager, restarts, false},
}

// roleNames are the roles as the design calls them.
var roleNames = map[string]localcluster.Role{
	"JobManager": jobManager, "JobManager and workers": leaderAndWorkers, "TaskManager": taskManager, "worker": worker, "local run": localRun,
}

var (
	rowPattern   = regexp.MustCompile("^\\| `([a-z]+\\.[a-z-]+)`(?:, [^|*]*)?( \\*error\\*)? \\| ([A-Za-z, ]+) \\|")
	pointPattern = regexp.MustCompile("^\\| `([a-z]+\\.[a-z-]+)`")
)

// The table in the design, the points in the code and the tests are the same.
func TestCrashTableIsWhole(t *testing.T) {
	inTable, described := map[string]bool{}, map[string]bool{}
	text, err := os.ReadFile(filepath.FromSlash("../../docs/design/exactly-once.md"))
	require.NoError(t, err)
	for _, line := range strings.Split(string(text), "\n") {
		if m := rowPattern.FindStringSubmatch(line); m != nil {
			described[m[1]] = true
			for _, name := range strings.Split(m[3], ", ") {
				role, known := roleNames[name]
				require.True(t, known, "role %q in: %s", name, line)
				inTable[fmt.Sprintf("%s/%s fails=%v", m[1], role, m[2] != "")] = true
			}
		} else {
			require.NotRegexp(t, pointPattern, line, "a row that cannot be read")
		}
	}
	// Some points of leaders are in a table of their own.
	elsewhere := map[string]bool{}
	for _, page := range []string{"leader-change.md", "rescale.md"} {
		text, err = os.ReadFile(filepath.Join("..", "..", "docs", "design", page))
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			if m := pointPattern.FindStringSubmatch(line); m != nil {
				elsewhere[m[1]] = true
			}
		}
	}
	inTest := map[string]bool{}
	for _, c := range slices.Concat(crashCells, localCells, durableCells) {
		shared := c.role == localRun && !strings.HasPrefix(string(c.point), "local.")
		if !shared && (c.role != jobManager || !elsewhere[string(c.point)]) {
			inTest[fmt.Sprintf("%s fails=%v", c, c.fails)] = true
		}
	}
	require.Equal(t, inTest, inTable)
	for _, p := range allPoints(t) {
		require.True(t, described[p] || elsewhere[p], "no row describes what happens at the fault point %s", p)
	}
}

// allPoints returns the names of all fault points.
func allPoints(t *testing.T) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../internal/faultpoint/points.go", nil, 0)
	require.NoError(t, err)
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			names = append(names, name)
		}
		return true
	})
	require.True(t, slices.Contains(names, string(faultpoint.Prepared)))
	return names
}
