// Package express is gsubmit as it is used thousands of times by scripts: a plain
// submission through the gauthd of this host.
//
// It decides, from the command line and what happens, whether this is a plain
// submission that went well. If not, whatever the reason, it leaves everything to
// the whole program, which is part of gctl, knows all options and has all the words;
// the id of the request goes along, so that what was stored is not stored twice. It
// links neither net, TLS nor HTTP, neither TOML nor the protobuf library: a process
// without them starts in less than half the time. It prints nothing but the
// answer and what was set aside.
package express

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/cli/jobspec"
	"github.com/greylag/greylag/internal/jobscript"
	"github.com/greylag/greylag/internal/version"
)

// RequestVariable hands the id of a request to the whole program.
const RequestVariable = "GREYLAG_REQUEST_ID"

// Command is gsubmit as the system started it.
type Command struct {
	Args    []string // after the program's name
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer // for what was set aside
	Now     time.Time
}

// Run submits, and reports whether that is all. If not, the whole program has to run,
// with the request id, which is "" where nothing was sent.
func (c Command) Run() (request string, done bool) {
	line, err := jobscript.CommandLine(c.Args)
	if err != nil || line.Has("help") {
		return "", false
	}
	if line.Has("version") {
		fmt.Fprintln(c.Stdout, "gsubmit", version.Version)
		return "", true
	}
	script, args, ok := plain(line)
	if !ok {
		return "", false
	}
	o, warnings, err := jobscript.Resolve(line, c.Environ, script, c.Now)
	// Moments may be told from now on, and would not be the same a moment later.
	if err != nil || len(warnings) > 0 || o.JSON || o.Wait || o.Quote || o.TestOnly || !o.Begin.IsZero() || !o.Deadline.IsZero() {
		return "", false
	}
	var cfg settings
	if err := cfg.load(); err != nil || cfg.output == "json" && !o.Parsable {
		return "", false
	}
	at, err := c.place()
	if err != nil {
		return "", false
	}
	spec, left, err := jobspec.Encode(o, script, args, at)
	if err != nil || len(left) > 0 {
		return "", false
	}
	return c.send(cfg.socket, spec, o)
}

// plain is the script and its arguments, unless it comes from standard input, which
// can be read only once.
func plain(line jobscript.Line) (jobscript.Script, []string, bool) {
	var script jobscript.Script
	var err error
	switch {
	case line.Has("wrap"):
		if len(line.Operands) > 0 {
			return script, nil, false
		}
		script, err = jobscript.Wrap(line.Value("wrap"))
		return script, nil, err == nil
	case len(line.Operands) == 0 || line.Operands[0] == "-":
		return script, nil, false
	}
	if info, err := os.Stat(line.Operands[0]); err != nil || !info.Mode().IsRegular() {
		return script, nil, false
	}
	script, err = jobscript.Open(line.Operands[0])
	return script, line.Operands[1:], err == nil
}

func (c Command) place() (jobspec.Place, error) {
	dir, err := os.Getwd()
	host, _ := os.Hostname() // for people only; "" is fine
	return jobspec.Place{Dir: dir, Host: host, Environ: c.Environ}, err
}

func (c Command) send(socket string, spec []byte, o jobscript.Options) (request string, done bool) {
	// The runtime's generator, which it seeds with chance of the kernel's: nobody else has such an id.
	bits := binary.BigEndian.AppendUint64(nil, rand.Uint64())
	id := hex.EncodeToString(binary.BigEndian.AppendUint64(bits, rand.Uint64()))
	body, err := post(socket, jobspec.SubmitRequest(id, spec))
	if err != nil {
		return id, false
	}
	answer, err := jobspec.ReadAnswer(body)
	if err != nil || answer.Warnings && !o.Quiet {
		return id, false
	}
	if answer.SetAside > 0 && !o.Quiet {
		fmt.Fprintln(c.Stderr, "gsubmit: note:", jobspec.SetAside(answer.SetAside))
	}
	if !o.Quiet {
		if _, err := io.WriteString(c.Stdout, answer.Line(o.Parsable)); err != nil {
			return id, false
		}
	}
	return id, true
}

// Whole replaces this process by the whole program, for the request that was begun.
// It returns only with an error.
func Whole(request string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(self), "gctl")
	if err := syscall.Exec(program, append([]string{"gsubmit"}, os.Args[1:]...), environment(os.Environ(), request)); err != nil {
		return fmt.Errorf("%s, which belongs to gsubmit: %w", program, err)
	}
	return nil
}

// environment is that of the whole program: with the id of the request that was begun,
// and of no other, which would count before it.
func environment(environ []string, request string) []string {
	environ = slices.DeleteFunc(environ, func(v string) bool { return strings.HasPrefix(v, RequestVariable+"=") })
	if request != "" {
		environ = append(environ, RequestVariable+"="+request)
	}
	return environ
}
