package daemon

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/greylag/greylag/internal/step/stream"
)

// broadcast copies the standard input to all tasks that read it. grun sends at most stream.Window
// bytes that no report covers, so adding never waits.
type broadcast struct {
	taken func(bytes int) // reports to grun

	mu      sync.Mutex
	readers []*reader
	pending int // bytes added and not reported
	epoch   int // counts the programs that send input
	ended   bool
	closed  bool
}

// chunk is input under way; left is the number of tasks that have not taken it.
type chunk struct {
	data  []byte
	left  int
	epoch int
}

// reader is the input of one task.
type reader struct {
	file     *os.File
	terminal bool
	queue    []*chunk
	changed  chan struct{} // has an element after a change of the queue, ended or closed
}

// join adds a task.
func (b *broadcast) join(file *os.File) {
	b.readers = append(b.readers, &reader{file: file, changed: make(chan struct{}, 1)})
}

// joinTerminal adds a task whose input is a terminal; its file is closed with the output.
func (b *broadcast) joinTerminal(file *os.File) {
	b.join(file)
	b.readers[len(b.readers)-1].terminal = true
}

// start begins to copy, after all tasks joined.
func (b *broadcast) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.readers {
		go b.copy(r)
	}
}

// add queues input. The error is for a peer that sends more than the window.
func (b *broadcast) add(data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pending += len(data); b.pending > stream.Window {
		return fmt.Errorf("%w: input beyond the window", stream.ErrFrame)
	}
	c := &chunk{data: append([]byte(nil), data...), left: len(b.readers), epoch: b.epoch}
	if c.left == 0 || b.closed {
		c.left = 1
		go b.take(c) // receiving must not wait for sending
		return nil
	}
	for _, r := range b.readers {
		r.queue = append(r.queue, c)
		r.wake()
	}
	return nil
}

func (r *reader) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// end closes the tasks' input after what is queued.
func (b *broadcast) end() { b.mark(&b.ended) }

// reset begins the input of another program, which may send a whole window.
func (b *broadcast) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending, b.epoch = 0, b.epoch+1
}

// close drops what the tasks have not taken, once they have ended.
func (b *broadcast) close() {
	b.mark(&b.closed)
	for _, r := range b.readers {
		if !r.terminal {
			r.file.Close() // also ends a write under way
		}
	}
}

func (b *broadcast) mark(flag *bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*flag = true
	for _, r := range b.readers {
		r.wake()
	}
}

// endOfTransmission is the end of the input on a terminal.
const endOfTransmission = 4

// copy writes the input to a task. A task that closed its input, or ended, takes everything.
func (b *broadcast) copy(r *reader) {
	gone := false
	for range r.changed {
		b.mu.Lock()
		queue, ended, closed := r.queue, b.ended, b.closed
		r.queue = nil
		b.ended = ended && !r.terminal // another program may send input to a terminal
		b.mu.Unlock()
		for _, c := range queue {
			if !gone && !closed {
				_, err := r.file.Write(c.data)
				gone = err != nil
			}
			b.take(c)
		}
		switch {
		case closed:
			return
		case ended && r.terminal && !gone:
			b.endTerminal(r)
		case ended && !r.terminal:
			r.file.Close()
			return
		}
	}
}

// endTerminal writes the end of the input until the task has ended or another program has the terminal:
// a terminal loses one that it gets before a program such as a shell changes its mode.
func (b *broadcast) endTerminal(r *reader) {
	b.mu.Lock()
	epoch := b.epoch
	b.mu.Unlock()
	for {
		if _, err := r.file.Write([]byte{endOfTransmission}); err != nil {
			return
		}
		select {
		case <-r.changed:
		case <-time.After(endPause):
		}
		b.mu.Lock()
		over := b.closed || b.epoch != epoch
		b.mu.Unlock()
		if over {
			r.wake()
			return
		}
	}
}

// endPause is the time between two ends of the input on a terminal.
const endPause = time.Second

// take counts one task that took a chunk, and reports the chunk after the last one.
func (b *broadcast) take(c *chunk) {
	b.mu.Lock()
	c.left--
	done := c.left == 0 && c.epoch == b.epoch
	if done {
		b.pending -= len(c.data)
	}
	b.mu.Unlock()
	if done {
		b.taken(len(c.data))
	}
}
