// Package express is the fast path of gsubmit, and of gsubmit under the name sbatch, for scripts that start it thousands of times: a plain
// submission through the gauthd of this host.
//
// It decides, from the command line and the answer, whether this is a plain submission that
// succeeded. If not, for any reason, it leaves everything to the full program, which is part of
// gctl, has all options and prints all messages. The request ID is passed on, so that a stored
// submission is not stored again. It links neither net, TLS nor HTTP, neither TOML nor the protobuf
// library: a process without them starts in less than half the time. It prints only the answer and
// the lien.
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

// RequestVariable passes a request ID to the full program.
const RequestVariable = "GREYLAG_REQUEST_ID"

// Command is gsubmit as the system started it.
type Command struct {
	Args    []string // after the program's name
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer // for the lien
	Now     time.Time
	Slurm   bool // it is called sbatch, and takes and prints what sbatch does
}

// Run submits, and reports whether it is done. If not, the full program has to run, with the
// request ID, which is "" if nothing was sent.
func (c Command) Run() (request string, done bool) {
	read := jobscript.CommandLine
	if c.Slurm {
		read = jobscript.SbatchLine
	}
	line, err := read(c.Args)
	if err != nil || line.Has("help") || line.Has("usage") {
		return "", false
	}
	if line.Has("version") {
		text := "gsubmit " + version.Version
		if c.Slurm {
			text = jobspec.SlurmVersion
		}
		fmt.Fprintln(c.Stdout, text)
		return "", true
	}
	script, args, ok := plain(line)
	if !ok {
		return "", false
	}
	o, warnings, err := jobscript.Resolve(line, c.Environ, script, c.Now)
	// Relative times may be read from here on, and would differ a moment later.
	if err != nil || len(warnings) > 0 || o.JSON || o.Wait || o.Quote || o.TestOnly || !o.Begin.IsZero() || !o.Deadline.IsZero() || o.Clusters != "" || c.Slurm && (o.LoginEnv || o.Export.Login) {
		return "", false
	}
	var cfg settings
	if err := cfg.load(); err != nil || cfg.output == "json" && !o.Parsable && !c.Slurm {
		return "", false
	}
	if c.Slurm {
		if len(script.Foreign()) > 0 {
			return "", false
		}
		o.SlurmDefaults(script)
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

// plain returns the script and its arguments, unless it comes from standard input, which can be
// read only once.
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
	// The runtime's generator, seeded by the kernel: the ID is unique.
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
		fmt.Fprintln(c.Stderr, c.program()+":", jobspec.SetAside(answer.SetAside))
	}
	if _, err := io.WriteString(c.Stdout, c.line(answer, o)); err != nil {
		return id, false
	}
	return id, true
}

// program begins the messages.
func (c Command) program() string {
	if c.Slurm {
		return "sbatch"
	}
	return "gsubmit: note"
}

// line is the answer.
func (c Command) line(answer jobspec.Submitted, o jobscript.Options) string {
	switch {
	case c.Slurm:
		return jobspec.SbatchLine(answer.ID, o.Parsable, o.Quiet, "")
	case o.Quiet:
		return ""
	}
	return answer.Line(o.Parsable)
}

// Whole replaces this process by the full program, for the same request: gctl, or gslurm for sbatch. It
// returns only with an error.
func (c Command) Whole(request string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	name, file := "gsubmit", "gctl"
	if c.Slurm {
		name, file = "sbatch", "gslurm"
	}
	program := filepath.Join(filepath.Dir(self), file)
	if err := syscall.Exec(program, append([]string{name}, os.Args[1:]...), environment(os.Environ(), request)); err != nil {
		return fmt.Errorf("%s, which belongs to %s: %w", program, name, err)
	}
	return nil
}

// environment returns the full program's: with the ID of this request, and without an inherited
// one, which would take precedence.
func environment(environ []string, request string) []string {
	environ = slices.DeleteFunc(environ, func(v string) bool { return strings.HasPrefix(v, RequestVariable+"=") })
	if request != "" {
		environ = append(environ, RequestVariable+"="+request)
	}
	return environ
}
