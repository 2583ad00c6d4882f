package launch

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/greylag/greylag/internal/step"
	"github.com/greylag/greylag/internal/step/stream"
)

// exitGroup are the tasks of a node that ended in the same way.
type exitGroup struct {
	node  *node
	text  string
	ranks []int
}

// exited records the end of a task, and ends the step if it has to.
func (r *running) exited(n *node, e step.Exit) {
	if r.states[e.Rank] == taskEnded {
		return
	}
	r.states[e.Rank] = taskEnded
	if r.ending { // it was ordered to end
		return
	}
	r.tally.Add(e)
	if e.Lost {
		r.tally.Add(step.Exit{Code: StatusLost})
	}
	if text := describe(e); text != "" {
		r.addExit(n, e.Rank, text)
	}
	switch failed := e.Status() != 0 || e.OOM; {
	case e.Lost && r.unfinished() > 0:
		r.end(fmt.Sprintf("task %d called MPI_Init and ended without MPI_Finalize", e.Rank), syscall.SIGTERM, 0)
	case failed && r.KillOnBadExit && r.unfinished() > 0:
		r.end("a task failed (--kill-on-bad-exit)", syscall.SIGTERM, 0)
	case r.Wait > 0 && !r.waiting && r.unfinished() > 0:
		r.waiting = true
		r.after(r.Wait, func() {
			if r.unfinished() > 0 {
				r.end(fmt.Sprintf("%s passed since the first task ended (--wait)", r.Wait), syscall.SIGTERM, 0)
			}
		})
	}
}

// unfinished counts the tasks that have not ended.
func (r *running) unfinished() int {
	n := 0
	for _, s := range r.states {
		if s != taskEnded {
			n++
		}
	}
	return n
}

// describeSignal returns the words of Slurm's messages, which are those of strsignal(3).
func describeSignal(number int) string {
	text := syscall.Signal(number).String()
	return strings.ToUpper(text[:1]) + text[1:]
}

// describe says how a task ended; "" for success.
func describe(e step.Exit) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.OOM:
		return "Out Of Memory"
	case e.Signal > 0 && e.Core:
		return describeSignal(e.Signal) + " (core dumped)"
	case e.Signal > 0:
		return describeSignal(e.Signal)
	case e.Code > 0:
		return "Exited with exit code " + strconv.Itoa(e.Code)
	}
	return ""
}

// addExit collects messages for a moment, since tasks often end together.
func (r *running) addExit(n *node, rank int, text string) {
	if len(r.exits) == 0 {
		r.after(collectExits, r.flushExits)
	}
	for i := range r.exits {
		if g := &r.exits[i]; g.node == n && g.text == text {
			g.ranks = append(g.ranks, rank)
			return
		}
	}
	r.exits = append(r.exits, exitGroup{n, text, []int{rank}})
}

// flushExits prints the collected messages.
func (r *running) flushExits() {
	for _, g := range r.exits {
		slices.Sort(g.ranks)
		r.Note(true, fmt.Sprintf("%s: %s: %s", g.node.Name, nameTasks(g.ranks), g.text))
	}
	r.exits = nil
}

func nameTasks(ranks []int) string {
	if len(ranks) == 1 {
		return "task " + strconv.Itoa(ranks[0])
	}
	return "tasks " + step.FormatRanks(ranks)
}

// aborted ends the step for a task that called MPI_Abort.
func (r *running) aborted(n *node, a stream.AbortRequest) {
	if r.ending {
		return
	}
	text := fmt.Sprintf("%s: task %d: called MPI_Abort with exit code %d", n.Name, a.Rank, a.Code)
	if a.Message != "" {
		text += ": " + a.Message
	}
	r.end(text, syscall.SIGTERM, a.Code&0xff)
}

// end orders the tasks to end. A status other than 0 becomes that of the step.
func (r *running) end(why string, sig syscall.Signal, status int) {
	if r.ending {
		return
	}
	r.ending, r.status = true, status
	r.flushExits()
	r.Note(true, why)
	for _, n := range r.nodes {
		if n.conn == nil { // it may still come, and is refused then
			r.leave(n)
		}
	}
	r.order(func(c *stream.Conn) error {
		return c.SendValue(stream.End, step.Ending{Signal: int(sig), Grace: endGrace})
	})
	r.after(endGrace+reportGrace, func() {
		r.Note(true, "no report of the end from "+r.silent())
		r.leaving = true
	})
}

// silent names the nodes that are not done.
func (r *running) silent() string {
	var names []string
	for _, n := range r.nodes {
		if !n.done {
			names = append(names, n.Name)
		}
	}
	return strings.Join(names, ", ")
}

// checkConnected ends a step that a node did not join in time.
func (r *running) checkConnected() {
	var names []string
	for _, n := range r.nodes {
		if n.conn == nil && !n.done {
			names = append(names, n.Name)
		}
	}
	if len(names) > 0 {
		r.end(fmt.Sprintf("the step did not start on %s within %s", strings.Join(names, ", "), r.Connect), syscall.SIGTERM, StatusLost)
	}
}

// leave counts a node from which no more comes.
func (r *running) leave(n *node) {
	if n.done {
		return
	}
	n.done = true
	close(n.gone)
	r.unended--
	n.window.close()
	if conn := n.conn; conn != nil {
		r.closing.Go(func() { conn.Close() }) // it waits for the node's end of a tunnel
	}
}

// finished handles the end of a node's connection; err is nil after its last report.
func (r *running) finished(n *node, err error) {
	r.leave(n)
	lost := 0
	for rank := n.first; rank < n.first+n.Tasks; rank++ {
		if r.states[rank] != taskEnded {
			r.states[rank] = taskEnded
			lost++
		}
	}
	if err == nil || r.ending || lost == 0 {
		return
	}
	text := n.Name + ": the connection to the node ended"
	r.tally.Add(step.Exit{Code: StatusLost})
	if r.NoKill {
		r.Note(true, text)
		return
	}
	r.end(text, syscall.SIGTERM, StatusLost)
}

// signalled handles a signal that grun got.
func (r *running) signalled(got os.Signal) {
	sig, ok := got.(syscall.Signal)
	switch {
	case !ok:
	case sig == syscall.SIGWINCH:
		if r.Size != nil {
			rows, cols := r.Size()
			r.order(func(c *stream.Conn) error { return c.Send(stream.Resize, uint32(rows)<<16|uint32(cols)) })
		}
	case (sig == syscall.SIGHUP || sig == syscall.SIGTERM) && r.KeepOnHangup && r.detachable() && !r.unstarted():
		r.detach()
	case sig == syscall.SIGINT && !r.Program.PTY:
		r.interrupted()
	case sig == syscall.SIGTERM && r.Program.PTY: // shells ignore it; SIGHUP as when a terminal closes
		r.end("stopped by a signal: "+sig.String(), syscall.SIGHUP, 128+int(sig))
	case r.unstarted() && sig != syscall.SIGCONT && sig != syscall.SIGALRM:
		r.end("stopped by a signal before the step started: "+sig.String(), syscall.SIGTERM, 128+int(sig))
	default:
		r.order(func(c *stream.Conn) error { return c.Send(stream.Signal, uint32(sig)) })
	}
}

// unstarted reports whether a node has not connected yet.
func (r *running) unstarted() bool {
	return slices.ContainsFunc(r.nodes, func(n *node) bool { return n.conn == nil && !n.done })
}

// interrupted handles Ctrl-C: the first reports, a second within a second ends the step, a further
// one leaves.
func (r *running) interrupted() {
	now := time.Now()
	switch {
	case r.ending:
		r.leaving, r.status = true, StatusInterrupted
	case r.QuitOnInterrupt || !r.pressed.IsZero() && now.Sub(r.pressed) <= secondPress:
		r.end("interrupt: ending step "+r.ID, syscall.SIGINT, StatusInterrupted)
	default:
		r.pressed = now
		r.Note(false, "interrupt (once more within 1 second to end the step)")
		r.Note(false, "step "+r.ID+": "+r.report())
	}
}

// report says which tasks are in which state.
func (r *running) report() string {
	var parts []string
	for state, word := range []string{"pending", "running", "ended"} {
		var ranks []int
		for rank, s := range r.states {
			if s == taskState(state) {
				ranks = append(ranks, rank)
			}
		}
		if len(ranks) > 0 {
			parts = append(parts, nameTasks(ranks)+": "+word)
		}
	}
	return strings.Join(parts, "; ")
}

// askEnded ends a step whose nodes will not come.
func (r *running) askEnded(pause time.Duration) {
	for ticker := time.NewTicker(pause); ; {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			return
		}
		missing := make(chan bool, 1)
		if !r.post(func() { missing <- r.unstarted() }) || !<-missing {
			return
		}
		if why := r.Ended(r.ctx); why != "" {
			r.post(func() { r.end(why, syscall.SIGTERM, StatusLost) })
			return
		}
	}
}
