package main

// edit is a text of a file, found exactly once, and what stands in its place.
type edit struct {
	file     string // from the root of the module
	old, new string
}

// mutation is one way to break the protocol.
type mutation struct {
	name  string
	edits []edit
	// suite are the arguments of go test for the quickest suite that must fail.
	suite []string
	// robustness says that the robustness suite must notice too.
	robustness bool
}

var mutations = []mutation{
	{
		name: "a transaction is committed at its barrier, before the completion",
		edits: []edit{{"sinks/twophase.go", `			if err := d.commits.prepare(b.Checkpoint, c); err != nil {
				return nil, fmt.Errorf("sink %s: %w", d.uid, err)
			}
`, `			if err := d.commits.prepare(b.Checkpoint, c); err != nil {
				return nil, fmt.Errorf("sink %s: %w", d.uid, err)
			}
			d.commits.request(b.Checkpoint, func(error) {})
`}},
		suite: []string{"./sinks"}, robustness: true,
	},
	{
		name: "workers are told of a completion before it is in the log",
		edits: []edit{{"jobmanager/driver/checkpoints.go", `		j.writeMetadata(att.number, e)
`, `		j.commandAll(completeCommand(e.Checkpoint), nil)
		j.writeMetadata(att.number, e)
`}},
		suite: []string{"./jobmanager/driver"},
	},
	{
		name: "a snapshot leaves out the transactions of earlier checkpoints",
		edits: []edit{{"sinks/twophase.go", `	for _, e := range pending {
		snap.Committables = append(`, `	for _, e := range pending {
		if e.Checkpoint != b.Checkpoint {
			continue
		}
		snap.Committables = append(`}},
		suite: []string{"./sinks"},
	},
	{
		name: "a snapshot leaves out the transaction of its own checkpoint",
		edits: []edit{{"sinks/twophase.go", `	for _, e := range pending {
		snap.Committables = append(`, `	for _, e := range pending {
		if e.Checkpoint == b.Checkpoint {
			continue
		}
		snap.Committables = append(`}},
		suite: []string{"./sinks"}, robustness: true,
	},
	{
		name: "former attempts are not fenced",
		edits: []edit{{"sinks/twophase.go", `RecoverAbort(ctx context.Context, scope operator.Scope) error {
`, `RecoverAbort(ctx context.Context, scope operator.Scope) error {
	if true {
		return nil
	}
`}},
		suite: []string{"./sinks"}, robustness: true,
	},
	{
		name: "restored transactions are not committed",
		edits: []edit{{"sinks/twophase.go", `	if len(cs) == 0 {
		return nil
	}
	restored`, `	if len(cs) >= 0 {
		return nil
	}
	restored`}},
		suite: []string{"./sinks"},
	},
	{
		name: "the first error keeps the other transactions from being committed",
		edits: []edit{{"sinks/committer.go", `				c.logger.Error("another commit ended with an error", "checkpoint", e.Checkpoint, "error", err)
			}
			continue`, `				c.logger.Error("another commit ended with an error", "checkpoint", e.Checkpoint, "error", err)
			}
			break`}},
		suite: []string{"./sinks"},
	},
	{
		name:  "a transactional id is free as soon as its transaction is committed",
		edits: []edit{{"sinks/ledger/ledger.go", `		free := e.state == committed && e.listed < l.completed`, `		free := e.state == committed`}},
		suite: []string{"./sinks/ledger"},
	},
	{
		name:  "what is not completed is committed with what is",
		edits: []edit{{"sinks/ledger/ledger.go", `		case e.Checkpoint > l.completed || e.state == committing:`, `		case e.state == committing:`}},
		suite: []string{"./sinks/ledger"},
	},
	{
		name:  "a notice is not repeated",
		edits: []edit{{"jobmanager/checkpoint/commits.go", `	return c.noticed.Add(notifyEvery), true`, `	return time.Time{}, false`}},
		suite: []string{"./jobmanager/checkpoint"},
	},
	{
		name:  "retention deletes a file that a retained checkpoint needs",
		edits: []edit{{"jobmanager/checkpoint/files.go", `			if _, ok := needed[f.GetName()]; !ok && strings.HasPrefix(f.GetName(), prefix) {`, `			if strings.HasPrefix(f.GetName(), prefix) {`}},
		suite: []string{"./jobmanager/checkpoint"},
	},
	{
		name:  "the completion of a former attempt is accepted",
		edits: []edit{{"jobmanager/fsm/completion.go", `		case cp.GetAttempt() != r.GetAttempt():`, `		case cp.GetAttempt() > r.GetAttempt():`}},
		suite: []string{"./jobmanager/fsm"},
	},
	{
		name: "a completion whose outcome is unknown counts as refused",
		edits: []edit{{"jobmanager/driver/checkpoints.go", `		if !hasCompleted(j.rec, id) {
			return checkpoint.Decided{`, `		if true {
			return checkpoint.Decided{`}},
		suite: []string{"./jobmanager/driver"},
	},
	{
		name: "records behind a barrier do not wait for the other inputs",
		edits: []edit{{"taskmanager/worker/barrier/aligner.go", `	if a.missing > 0 {
		e.Block = true
		return e`, `	if a.missing > 0 {
		return e`}},
		suite: []string{"./taskmanager/worker/barrier"},
	},
	{
		name: "a transaction is prepared although records have no outcome",
		edits: []edit{
			{"sinks/kafka/tracker.go", `	if n := t.outstanding(); n != 0 {`, `	if n := t.outstanding(); n < 0 {`},
			{"sinks/kafka/tracker.go", `	if count != t.sent {`, `	if count < 0 {`},
		},
		suite: []string{"-run", "TestTracker", "./sinks/kafka"},
	},
	{
		name: "a failed record is passed over",
		edits: []edit{{"sinks/kafka/tracker.go", `		t.failure.CompareAndSwap(nil, &err)
`, `		_ = err
`}},
		suite: []string{"-run", "TestTracker", "./sinks/kafka"},
	},
}
