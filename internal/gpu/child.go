package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// eventBacklog limits pending events. More at one moment are a storm whose first lines suffice.
const eventBacklog = 256

// lastWords limits the kept standard error of the child, in bytes.
const lastWords = 2048

// errEnded means that the child has ended.
var errEnded = errors.New("the GPU helper has ended")

// child is one process of the helper program.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan RawEvent
	beats  chan struct{}
	done   chan struct{} // closed when it has ended

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan Reply
	err     error
	said    tail
}

// startChild starts the program. It ends with this process.
func startChild(program string) (*child, error) {
	c := &child{
		cmd:    exec.Command(program),
		events: make(chan RawEvent, eventBacklog), beats: make(chan struct{}, 1), done: make(chan struct{}),
		waiting: map[uint64]chan Reply{},
	}
	// A process group of its own: signals of a terminal do not reach it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = &c.said
	c.cmd.WaitDelay = time.Second
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdin = stdin
	go c.read(stdout)
	return c, nil
}

// read receives messages until the child ends or sends an invalid one.
func (c *child) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLine)
	var err error
	for err == nil && lines.Scan() {
		var reply Reply
		if reply, err = DecodeReply(lines.Bytes()); err == nil {
			c.take(reply)
		}
	}
	if err == nil {
		err = lines.Err()
	}
	c.kill()
	_ = c.cmd.Wait() // ProcessState has the result
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(errEnded, err)
	if err == nil {
		c.err = fmt.Errorf("%w: %v: %s", errEnded, c.cmd.ProcessState, strings.Join(strings.Fields(c.said.String()), " "))
	}
	close(c.done)
}

func (c *child) take(reply Reply) {
	switch {
	case reply.Event != nil:
		select {
		case c.events <- *reply.Event:
		default:
		}
	case reply.ID != 0:
		c.mu.Lock()
		answer := c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.mu.Unlock()
		if answer != nil {
			answer <- reply
		}
	}
	// A message other than an answer shows that the child waits for events.
	if reply.ID == 0 {
		select {
		case c.beats <- struct{}{}:
		default:
		}
	}
}

// ask sends a request and waits for its answer.
func (c *child) ask(ctx context.Context, request Request) (Reply, error) {
	answer := make(chan Reply, 1)
	c.mu.Lock()
	c.next++
	request.ID = c.next
	c.waiting[request.ID] = answer
	line, err := Encode(request)
	if err == nil {
		// A pipe holds thousands of requests; a child that reads none is killed at its first missed
		// deadline.
		_, err = c.stdin.Write(line)
	}
	c.mu.Unlock()
	if err != nil {
		c.kill()
		<-c.done
		return Reply{}, c.reason()
	}
	select {
	case reply := <-answer:
		return reply, nil
	case <-c.done:
		return Reply{}, c.reason()
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, request.ID)
		c.mu.Unlock()
		return Reply{}, ctx.Err()
	}
}

// kill kills the child and its children; it may have ended.
func (c *child) kill() { _ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }

func (c *child) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > lastWords {
		t.text = append(t.text[:0], t.text[len(t.text)-lastWords:]...)
	}
	return len(p), nil
}

// String returns the kept bytes.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
