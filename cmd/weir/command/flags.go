package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-stream/weir/internal/keygroup"
)

// durationFlag is the value of a flag that takes a duration of least or more.
type durationFlag struct {
	value *time.Duration
	least time.Duration
}

func (f durationFlag) String() string {
	if f.value == nil {
		return "0s"
	}
	return f.value.String()
}

func (f durationFlag) Type() string { return "duration" }

func (f durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("not a duration such as 90s or 3m")
	}
	if d < f.least {
		if f.least > 0 {
			return errors.New("it must be longer than 0")
		}
		return errors.New("it must not be negative")
	}
	*f.value = d
	return nil
}

// duration defines a flag for a duration that may be zero.
func duration(cmd *cobra.Command, name string, value time.Duration, usage string) *time.Duration {
	cmd.Flags().Var(durationFlag{value: &value}, name, usage)
	return &value
}

// positive is duration without zero.
func positive(cmd *cobra.Command, name string, value time.Duration, usage string) *time.Duration {
	cmd.Flags().Var(durationFlag{value: &value, least: 1}, name, usage)
	return &value
}

// auto is the parallelism of a job that follows the number of slots.
const auto = "auto"

// parallelismFlag is the value of a flag that takes a parallelism, 0 for none, or auto.
type parallelismFlag struct {
	value *uint32
	auto  *bool
}

func (f parallelismFlag) String() string {
	switch {
	case f.value == nil:
		return "0"
	case *f.auto:
		return auto
	}
	return strconv.FormatUint(uint64(*f.value), 10)
}

func (f parallelismFlag) Type() string { return "N|auto" }

func (f parallelismFlag) Set(text string) error {
	if text == auto {
		*f.value, *f.auto = 0, true
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > keygroup.MaxMaxParallelism {
		return fmt.Errorf("neither auto nor a whole number from 0 to %d", keygroup.MaxMaxParallelism)
	}
	*f.value, *f.auto = uint32(n), false
	return nil
}

// operatorsFlag is the value of a flag that takes NAME=N and may be repeated.
type operatorsFlag struct {
	value *map[string]uint32
	zero  bool // N may be 0
}

func (f operatorsFlag) String() string { return "" }

func (f operatorsFlag) Type() string { return "NAME=N" }

func (f operatorsFlag) Set(text string) error {
	i := strings.LastIndex(text, "=")
	if i < 1 {
		return errors.New("not the name of an operator, = and a parallelism")
	}
	least := uint64(1)
	if f.zero {
		least = 0
	}
	n, err := strconv.ParseUint(text[i+1:], 10, 32)
	if err != nil || n < least || n > keygroup.MaxMaxParallelism {
		return fmt.Errorf("not a whole number from %d to %d after =", least, keygroup.MaxMaxParallelism)
	}
	if *f.value == nil {
		*f.value = make(map[string]uint32)
	}
	(*f.value)[text[:i]] = uint32(n)
	return nil
}

// maxName is the longest name of a job in bytes. JobManagers check names too, since a job can name itself.
const maxName = 128

// nameFlag is the value of a flag that takes the name of a job.
type nameFlag struct{ value *string }

func (f nameFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f nameFlag) Type() string { return "string" }

func (f nameFlag) Set(text string) error {
	if len(text) < 1 || len(text) > maxName {
		return fmt.Errorf("a job's name has 1 to %d bytes, this one %d", maxName, len(text))
	}
	for _, r := range text {
		if r == '@' || r == '/' || r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("a job's name has printable characters except '@' and '/', this one has %q", r)
		}
	}
	if strings.TrimSpace(text) != text {
		return errors.New("a job's name has no blanks around it")
	}
	*f.value = text
	return nil
}
