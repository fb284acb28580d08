package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/taskmanager"
)

// BrokerParty names the broker as a party of a [Trouble].
const BrokerParty = "broker"

// Trouble is what a network does to everything between two parties. They are ids of nodes, or BrokerParty; an empty one is everybody.
// Without Delay and Refuse nothing passes, and nobody is told.
type Trouble struct {
	A, B string
	// Delay is how much later each piece arrives, in both directions.
	Delay time.Duration
	// Refuse breaks the connections and refuses new ones.
	Refuse bool
}

func (t *Trouble) meets(l *link) bool {
	is := func(party, id string) bool { return party == "" || party == id }
	return is(t.A, l.origin) && is(t.B, l.to) || is(t.B, l.origin) && is(t.A, l.to)
}

// depends reports whether it takes a connection's origin to tell whether t meets it. The broker is no origin.
func (t *Trouble) depends(l *link) bool {
	switch {
	case t.A == "" || t.B == "":
		one := t.A + t.B
		return one != "" && one != l.to && one != BrokerParty
	case l.to == t.A:
		return t.B != BrokerParty
	case l.to == t.B:
		return t.A != BrokerParty
	}
	return false
}

// Trouble makes trouble until the function that it returns is called.
func (w *Network) Trouble(t Trouble) (end func()) {
	w.mu.Lock()
	w.troubles[&t] = true // from here on, new connections are looked up
	w.mu.Unlock()
	w.identify(w.unknown(&t))
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.Refuse {
		w.breakLinks(&t)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.troubles, &t)
		w.healed.Broadcast()
	}
}

// Break breaks the connections between two parties once; new ones are let through. An empty party is everybody.
func (w *Network) Break(a, b string) {
	t := &Trouble{A: a, B: b}
	w.identify(w.unknown(t))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakLinks(t)
}

// Isolate drops everything to and from a node.
func (w *Network) Isolate(p *localcluster.Process) { w.Trouble(Trouble{A: p.ID}) }

// Heal ends every trouble.
func (w *Network) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.troubles)
	w.healed.Broadcast()
}

// Broker returns the address that a broker is to advertise; SetBroker tells later where it listens.
func (w *Network) Broker() string {
	if w.broker == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
		w.broker, w.proxies = l, append(w.proxies, l)
	}
	return w.broker.Addr().String()
}

// SetBroker begins to lead connections to the broker.
func (w *Network) SetBroker(target string) { w.serve(w.broker, BrokerParty, target) }

// workerPorts is how many workers of one TaskManager may listen at the same time.
const workerPorts = 12

// ConfigureTaskManager makes the workers of a TaskManager reachable through the network only: they advertise another loopback address
// than the one on which they listen.
func (w *Network) ConfigureTaskManager(cfg *taskmanager.Config) {
	var number int
	_, err := fmt.Sscanf(cfg.Host, "tm%d", &number)
	require.NoError(w.t, err)
	host := fmt.Sprintf("127.1.0.%d", number)
	for first := 20000 + os.Getpid()%200*workerPorts; ; first += workerPorts {
		require.Less(w.t, first, 32000, "no range of free ports")
		listeners, free := listenAll(host, first)
		if !free {
			continue
		}
		w.proxies = append(w.proxies, listeners...)
		for i, l := range listeners {
			w.serve(l, cfg.Host, fmt.Sprintf("%s:%d", cfg.BindHost, first+i))
		}
		cfg.AdvertiseHost = host
		cfg.WorkerPorts.First, cfg.WorkerPorts.Last = uint16(first), uint16(first+workerPorts-1)
		return
	}
}

func listenAll(host string, first int) (out []net.Listener, ok bool) {
	for port := first; port < first+workerPorts; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			for _, l := range out {
				_ = l.Close()
			}
			return nil, false
		}
		out = append(out, l)
	}
	return out, true
}

// breakLinks closes the connections that t meets.
func (w *Network) breakLinks(t *Trouble) {
	for l := range w.links {
		if t.meets(l) {
			_ = l.client.Close()
			if l.server != nil {
				_ = l.server.Close()
			}
		}
	}
}

// pass waits until nothing holds a connection up, and returns by how much what passes is late; false when the connection is to be
// closed.
func (w *Network) pass(l *link) (delay time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed {
		held := false
		delay = 0
		for t := range w.troubles {
			switch {
			case !t.meets(l):
			case t.Refuse:
				return 0, false
			case t.Delay > 0:
				delay = max(delay, t.Delay)
			default:
				held = true
			}
		}
		if !held {
			return delay, true
		}
		w.healed.Wait()
	}
	return 0, false
}

// unknown returns the connections of which it takes the origin to tell whether t meets them.
func (w *Network) unknown(t *Trouble) (out []*link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		if t.depends(l) {
			out = append(out, l)
		}
	}
	return out
}

// doubtful reports whether it takes a connection's origin to tell whether there is trouble with it.
func (w *Network) doubtful(l *link) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.troubles {
		if t.depends(l) {
			return true
		}
	}
	return false
}

// identify finds out where connections come from. Those that are asked for meanwhile are looked up together, since each look takes a
// while and there may be many.
func (w *Network) identify(ls []*link) {
	w.mu.Lock()
	for _, l := range ls {
		if l.origins == nil {
			l.origins = make(chan struct{})
			w.asked = append(w.asked, l)
		}
	}
	if len(w.asked) > 0 && !w.looking {
		w.looking = true
		w.wg.Go(w.look)
	}
	w.mu.Unlock()
	for _, l := range ls {
		<-l.origins
	}
}

// look finds out what is asked for until nothing is. The kernel's list of connections is not read in one piece and may miss one that is
// there, so that a connection has to be missing many times to be taken for closed.
func (w *Network) look() {
	for {
		w.mu.Lock()
		batch := w.asked
		w.asked = nil
		w.looking = len(batch) > 0
		w.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		missing := make(map[string]*link) // by the two addresses
		for _, l := range batch {
			missing[addressPair(l.client.RemoteAddr(), l.client.LocalAddr())] = l
		}
		const tries = 5
		for try := 0; try < tries && len(missing) > 0; try++ {
			inodes := socketInodes(missing)
			if len(inodes) == 0 {
				continue
			}
			owners := w.owners()
			w.mu.Lock()
			for pair, inode := range inodes {
				missing[pair].origin = owners[inode]
				delete(missing, pair)
			}
			w.mu.Unlock()
		}
		for _, l := range batch {
			close(l.origins)
		}
	}
}

// owners returns the nodes by the sockets that they and their workers have.
func (w *Network) owners() map[string]string {
	out := make(map[string]string)
	for _, p := range w.nodes() {
		for _, pid := range append(children(p), p.PID()) {
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			for _, fd := range fds {
				to, _ := os.Readlink(fd)
				if inode, ok := strings.CutPrefix(to, "socket:["); ok {
					out[strings.TrimSuffix(inode, "]")] = p.ID
				}
			}
		}
	}
	return out
}

// children returns the processes that a node has started. The kernel's own list of them is much quicker to read than the states of all
// processes, but not every kernel has it.
func children(p *localcluster.Process) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.PID()))
	if len(lists) == 0 {
		return p.Children()
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// socketInodes returns the inodes of this machine's sockets that connect two addresses, as far as they are listed.
func socketInodes(of map[string]*link) map[string]string {
	out := make(map[string]string)
	text, _ := os.ReadFile("/proc/net/tcp")
	for _, line := range strings.Split(string(text), "\n") {
		// sl local remote state queues timer retransmits uid timeout inode; closed ones have inode 0
		if f := strings.Fields(line); len(f) > 9 && f[9] != "0" {
			if pair := f[1] + " " + f[2]; of[pair] != nil {
				out[pair] = f[9]
			}
		}
	}
	return out
}

// addressPair returns two addresses as the kernel lists them.
func addressPair(from, to net.Addr) string {
	hex := func(addr net.Addr) string {
		a := addr.(*net.TCPAddr)
		ip := a.IP.To4()
		return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
	}
	return hex(from) + " " + hex(to)
}
