package graph

import "time"

// Partitioning says how the records of an edge are spread over the consumer's subtasks.
type Partitioning uint8

// The partitionings.
const (
	Forward   Partitioning = iota + 1 // subtask i to subtask i
	Hash                              // by key group of the record's key
	Rebalance                         // round robin, batch by batch
	Broadcast                         // every record to every subtask
)

// Guarantee is the delivery guarantee of a sink.
type Guarantee uint8

// The guarantees, weakest first. The zero value means "the job's default": ExactlyOnce when checkpoints are on, else None.
const (
	GuaranteeDefault Guarantee = iota
	None
	AtLeastOnce
	ExactlyOnce
)

// Operator is one node of the logical graph and one link of a vertex's chain.
type Operator struct {
	UID  string // stable id; derived from the name when not given
	Name string
	Kind string // "source", "map", "window", "sink", ... for people
	// Parallelism is the number of subtasks; 0 takes the job's default.
	Parallelism int
	Source      bool
	Sink        bool
	Stateful    bool // needs a stable uid
	NamedByUser bool // name or uid was chosen by the user, not generated
	NoChain     bool // starts a vertex of its own
	// Codecs of key, state and output types, part of the fingerprint.
	Codecs    []string
	Guarantee Guarantee
	// TransactionSlots is the largest number of transactional ids one subtask may use; 0 without transactions.
	TransactionSlots int
	// DurableOutput tells that a sink keeps what its prepared transactions hold with the checkpoints.
	DurableOutput bool
	// Resource is what no other sink of the job may use, such as a transactional prefix; empty for nothing.
	Resource string
}

// Edge connects two operators of the logical graph.
type Edge struct {
	ID           string // unique in the graph, stable
	From, To     string // operator uids
	Partitioning Partitioning
	Codec        string // codec id of the records
}

// Vertex is a chain of operators that runs as one task per subtask. Operators are in topological order; the first one receives the
// vertex's input. Inside a vertex every operator but the first has exactly one upstream operator.
type Vertex struct {
	ID          string // uid of its first operator
	Parallelism int
	Operators   []Operator
	Source      bool
}

// VertexEdge connects two vertices. FromOperator is the operator inside the producing vertex whose output it carries; the consumer
// is always the first operator of ToVertex.
type VertexEdge struct {
	ID           string // the logical edge's id
	FromVertex   string
	FromOperator string
	ToVertex     string
	Partitioning Partitioning
	Codec        string
}

// CheckpointConfig holds a job's checkpoint settings.
type CheckpointConfig struct {
	Enabled           bool
	Interval          time.Duration // default 1 s
	Timeout           time.Duration // default 1 min
	MinPause          time.Duration // default 0
	ToleratedFailures int           // consecutive, default 3
	Retained          int           // default 3
	RecoveryBudget    time.Duration // default 2 min; the longest recovery that transactions must outlive
}

// RestartPolicy bounds automatic restarts.
type RestartPolicy struct {
	InitialDelay time.Duration // delay of the second restart within the window; the first has none
	MaxDelay     time.Duration
	Multiplier   float64
	MaxRestarts  int // within Window, before the job fails; 0 means never restart
	Window       time.Duration
}

// Graph is a compiled job.
type Graph struct {
	Name           string
	MaxParallelism int
	Vertices       []Vertex // topological order
	Edges          []VertexEdge
	// Chained lists the logical edges inside vertices.
	Chained     []Edge
	Checkpoints CheckpointConfig
	Restarts    RestartPolicy
	// Fingerprint is a hash over uids, operators, edges, parallelism and codecs; connector settings are not in it.
	Fingerprint string
}
