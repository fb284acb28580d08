package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := runner{}
	flag.BoolVar(&r.robustness, "robustness", false, "run the robustness suite instead of the quickest one")
	flag.StringVar(&r.only, "only", "", "run the mutations whose names contain this")
	flag.DurationVar(&r.duration, "duration", 4*time.Minute, "duration of a run of the robustness suite")
	flag.IntVar(&r.seeds, "seeds", 2, "runs of the robustness suite, with seeds from 1, before a mutation counts as not caught")
	flag.Parse()
	if err := r.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// runner applies one mutation after the other to a copy of the tree.
type runner struct {
	robustness bool
	only       string
	duration   time.Duration
	seeds      int
	dir        string // of the copy
}

func (r *runner) run(ctx context.Context) (err error) {
	root, err := output(ctx, ".", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "weir-mutations-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := copyTree(ctx, root, r.dir); err != nil {
		return err
	}
	if err := checkAll(r.dir); err != nil {
		return err
	}
	var missed []string
	count, sound := 0, make(map[string]bool)
	for _, m := range mutations {
		if !strings.Contains(m.name, r.only) || r.robustness && !m.robustness {
			continue
		}
		// A suite that fails anyway catches nothing.
		if suite := strings.Join(m.suite, " "); !r.robustness && !sound[suite] {
			if text, err := r.test(ctx, m.suite); err != nil {
				return fmt.Errorf("go test %s fails without any mutation: %w\n%s", suite, err, text)
			}
			sound[suite] = true
		}
		count++
		begin := time.Now()
		caught, why, err := r.try(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		verdict := "caught"
		if !caught {
			verdict = "NOT CAUGHT"
			missed = append(missed, m.name)
		}
		fmt.Printf("%-10s  %5.1fs  %s: %s\n", verdict, time.Since(begin).Seconds(), m.name, why)
	}
	if count == 0 {
		return errors.New("no mutation is chosen")
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d of %d mutations are not caught", len(missed), count)
	}
	fmt.Printf("all %d mutations are caught\n", count)
	return nil
}

// try applies a mutation, runs its suite and takes the mutation back. why names the first test that failed.
func (r *runner) try(ctx context.Context, m mutation) (caught bool, why string, err error) {
	before := make(map[string][]byte)
	defer func() {
		for name, text := range before {
			err = errors.Join(err, os.WriteFile(filepath.Join(r.dir, name), text, 0o644))
		}
	}()
	for _, e := range m.edits {
		text, err := os.ReadFile(filepath.Join(r.dir, e.file))
		if err != nil {
			return false, "", err
		}
		if _, ok := before[e.file]; !ok {
			before[e.file] = text
		}
		changed := strings.Replace(string(text), e.old, e.new, 1)
		if err := os.WriteFile(filepath.Join(r.dir, e.file), []byte(changed), 0o644); err != nil {
			return false, "", err
		}
	}
	if !r.robustness {
		text, err := r.test(ctx, m.suite)
		if err != nil && strings.Contains(text, "[build failed]") {
			return false, "", fmt.Errorf("it does not build, so that nothing is shown: %w\n%s", err, text)
		}
		return err != nil, verdictOf(text, m.suite), ctx.Err()
	}
	// The suite builds the programs itself, and would fail for want of them.
	if text, err := output(ctx, r.dir, "go", "build", "./..."); err != nil {
		return false, "", fmt.Errorf("it does not build, so that nothing is shown: %w\n%s", err, text)
	}
	for seed := 1; seed <= r.seeds; seed++ {
		suite := []string{"-run", "TestRobustness", "-timeout", "1h", "./test/robustness"}
		text, err := r.test(ctx, suite, fmt.Sprintf("WEIR_ROBUSTNESS_SEED=%d", seed), "WEIR_ROBUSTNESS_DURATION="+r.duration.String())
		if err != nil {
			return true, fmt.Sprintf("seed %d, %s", seed, verdictOf(text, suite)), ctx.Err()
		}
	}
	return false, fmt.Sprintf("robustness suite, %d runs of %s", r.seeds, r.duration), ctx.Err()
}

func (r *runner) test(ctx context.Context, suite []string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1"}, suite...)...)
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// verdictOf names the first test that failed, and its first message.
func verdictOf(text string, suite []string) string {
	name := "go test " + strings.Join(suite, " ")
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if test, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(test, " ")
			break
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		_, message, ok := strings.Cut(line, "Error:")
		if message = strings.TrimSpace(message); !ok || message == "" {
			continue
		}
		const context = 3 // testify tells more on the lines that follow
		for _, more := range lines[i+1 : min(len(lines), i+1+context)] {
			message += " " + strings.TrimSpace(more)
		}
		return name + ": " + message
	}
	return name
}

// checkAll returns an error unless the text of every edit is found exactly once.
func checkAll(root string) error {
	var errs []error
	for _, m := range mutations {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				errs = append(errs, fmt.Errorf("mutation %q: %w", m.name, err))
				continue
			}
			if n := strings.Count(string(text), e.old); n != 1 {
				errs = append(errs, fmt.Errorf("mutation %q applies no longer: its text is %d times in %s, not once; adapt test/robustness/mutations/table.go", m.name, n, e.file))
			}
		}
	}
	return errors.Join(errs...)
}

// copyTree copies what git knows and what is new, but not what it ignores.
func copyTree(ctx context.Context, from, to string) error {
	list, err := output(ctx, from, "git", "ls-files", "-co", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	for _, name := range strings.Split(list, "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if name == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(text)), err
}
