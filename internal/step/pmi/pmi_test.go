package pmi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// memoryExchange merges the pairs of nodes within one process.
type memoryExchange struct {
	nodes int
	mu    sync.Mutex
	merge map[string]string
	count int
	done  chan struct{}
}

func newMemoryExchange(nodes int) *memoryExchange {
	return &memoryExchange{nodes: nodes, merge: map[string]string{}, done: make(chan struct{})}
}

func (e *memoryExchange) Fence(ctx context.Context, pairs map[string]string) (map[string]string, error) {
	e.mu.Lock()
	merge, done := e.merge, e.done
	maps.Copy(merge, pairs)
	if e.count++; e.count == e.nodes {
		e.merge, e.count, e.done = map[string]string{}, 0, make(chan struct{})
		close(done)
	}
	e.mu.Unlock()
	select {
	case <-done:
		return merge, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// peer is the rank's end of a connection.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	end  chan error // the result of Serve
}

func connect(t *testing.T, s *Server, rank int) *peer {
	t.Helper()
	near, far := net.Pipe()
	p := &peer{t: t, conn: near, in: bufio.NewReader(near), end: make(chan error, 1)}
	go func() { p.end <- s.Serve(t.Context(), rank, far) }()
	_ = near.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { near.Close() })
	return p
}

func (p *peer) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, text); err != nil {
		p.t.Errorf("send %.60q: %v", text, err)
	}
}

// ask sends a line and checks the line that answers.
func (p *peer) ask(line, want string) {
	p.t.Helper()
	p.send(line + "\n")
	if got, err := p.in.ReadString('\n'); err != nil || got != want+"\n" {
		p.t.Errorf("%.80s\n got %q, %v\nwant %q", line, got, err, want+"\n")
	}
}

// ask2 sends a counted message and checks the one that answers.
func (p *peer) ask2(body, want string) {
	p.t.Helper()
	p.send(fmt.Sprintf("%-6d%s", len(body), body))
	got := make([]byte, lengthDigits+len(want))
	if _, err := io.ReadFull(p.in, got); err != nil || string(got) != fmt.Sprintf("%6d%s", len(want), want) {
		p.t.Errorf("%.80s\n got %q, %v\nwant %q", body, got, err, want)
	}
}

// ends checks what Serve returns.
func (p *peer) ends(want string) {
	p.t.Helper()
	select {
	case err := <-p.end:
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			p.t.Errorf("Serve returned %q, want %q", got, want)
		}
	case <-time.After(20 * time.Second):
		p.t.Error("Serve did not return")
	}
}

// single is a server of a step with one rank.
func single() *Server {
	return New(Config{Job: "123.0", Size: 1, Ranks: []int{0}, Mapping: Mapping([]int{1}), Abort: func(int, int, string) {}})
}

func join(t *testing.T, s *Server, rank int) *peer {
	t.Helper()
	p := connect(t, s, rank)
	p.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	return p
}

func join2(t *testing.T, s *Server, rank int) *peer {
	t.Helper()
	p := connect(t, s, rank)
	p.ask("cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0")
	return p
}

func TestDialogueOfPMI1(t *testing.T) {
	s := single()
	p := join(t, s, 0)
	p.ask("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024")
	p.ask("cmd=get_appnum", "cmd=appnum appnum=0")
	p.ask("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=123.0")
	p.ask("cmd=get_universe_size", "cmd=universe_size size=1")
	p.ask("cmd=get kvsname=123.0 key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,1,1))")
	p.ask("cmd=put kvsname=123.0 key=a value=x=1 y 2", "cmd=put_result rc=0")
	p.ask("cmd=barrier_in", "cmd=barrier_out rc=0")
	p.ask("cmd=get kvsname=123.0 key=a", "cmd=get_result rc=0 value=x=1 y 2")
	p.ask("cmd=get kvsname=123.0 key=b", "cmd=get_result rc=-1 msg=key_not_found")
	p.ask("cmd=get kvsname=9.0 key=a", "cmd=get_result rc=-1 msg=unknown_kvsname")
	p.ask("cmd=publish_name service=a port=b", "cmd=publish_result rc=-1 msg=not_supported_by_this_server")
	p.send("mcmd=spawn\ntotspawns=2\nspawnssofar=1\nendcmd\n")
	p.ask("mcmd=spawn\ntotspawns=2\nspawnssofar=2\nendcmd", "cmd=spawn_result rc=-1 msg=not_supported_by_this_server")
	p.ask("cmd=finalize", "cmd=finalize_ack rc=0")
	if initialized, finalized := s.Joined(0); !initialized || !finalized {
		t.Errorf("joined: %v, %v", initialized, finalized)
	}
	p.conn.Close()
	p.ends("nil")
}

func TestDialogueOfPMI2(t *testing.T) {
	s := single()
	p := join2(t, s, 0)
	p.ask2("cmd=fullinit;pmijobid=123.0;pmirank=0;threaded=FALSE;",
		"cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;")
	p.ask2("cmd=job-getid;thrid=7;", "cmd=job-getid-response;thrid=7;rc=0;jobid=123.0;")
	p.ask2("cmd=info-getjobattr;key=PMI_process_mapping;", "cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,1));")
	p.ask2("cmd=info-getjobattr;key=universeSize;", "cmd=info-getjobattr-response;rc=0;found=TRUE;value=1;")
	p.ask2("cmd=info-getjobattr;key=other;", "cmd=info-getjobattr-response;rc=0;found=FALSE;")
	p.ask2("cmd=kvs-put;key=k;value=a;;b=;;;", "cmd=kvs-put-response;rc=0;")
	p.ask2("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;")
	p.ask2("cmd=kvs-get;jobid=123.0;srcid=-1;key=k;", "cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=;;;")
	p.ask2("cmd=kvs-get;key=none;", "cmd=kvs-get-response;rc=0;found=FALSE;")
	p.ask2("cmd=info-getnodeattr;key=a;wait=FALSE;", "cmd=info-getnodeattr-response;rc=0;found=FALSE;")
	p.ask2("cmd=info-putnodeattr;key=a;value=b;", "cmd=info-putnodeattr-response;rc=0;")
	p.ask2("cmd=info-getnodeattr;key=a;wait=TRUE;", "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=b;")
	p.ask2("cmd=name-publish;name=a;port=b;", "cmd=name-publish-response;rc=-1;errmsg=not supported by this server;")
	p.ask2("cmd=finalize;", "cmd=finalize-response;rc=0;")
	p.ask2("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=-1;errmsg=init must come first: this rank called finalize;")
	p.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	p.ask("cmd=get key=k", "cmd=get_result rc=0 value=a;b=;")
	if _, finalized := s.Joined(0); finalized {
		t.Error("the second program of the rank counts as finalized")
	}
}

func TestNodeAttributeIsAwaited(t *testing.T) {
	s := New(Config{Job: "1.0", Size: 2, Ranks: []int{0, 1}})
	a, b := join2(t, s, 0), join2(t, s, 1)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		a.ask2("cmd=info-getnodeattr;key=k;wait=TRUE;", "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;")
	}()
	b.ask2("cmd=info-putnodeattr;key=other;value=v;", "cmd=info-putnodeattr-response;rc=0;")
	b.ask2("cmd=info-putnodeattr;key=k;value=v;", "cmd=info-putnodeattr-response;rc=0;")
	<-answered
}

func TestRanksOnTwoNodesSeeEachOthersPairs(t *testing.T) {
	exchange := newMemoryExchange(2)
	var all sync.WaitGroup
	for node, ranks := range [][]int{{0, 1, 2}, {3, 4}} {
		s := New(Config{Job: "5.1", Size: 5, Ranks: ranks, Node: node, Exchange: exchange})
		for _, rank := range ranks {
			all.Go(func() {
				p := join(t, s, rank)
				for round := range 3 {
					p.ask(fmt.Sprintf("cmd=put kvsname=5.1 key=r%d-%d value=of %d", round, rank, rank), "cmd=put_result rc=0")
					p.ask("cmd=barrier_in", "cmd=barrier_out rc=0")
					for other := range 5 {
						p.ask(fmt.Sprintf("cmd=get kvsname=5.1 key=r%d-%d", round, other), fmt.Sprintf("cmd=get_result rc=0 value=of %d", other))
					}
				}
				p.ask("cmd=finalize", "cmd=finalize_ack rc=0")
			})
		}
	}
	all.Wait()
}

// brokenExchange is one whose connection to the other nodes is lost.
type brokenExchange struct{}

func (brokenExchange) Fence(context.Context, map[string]string) (map[string]string, error) {
	return nil, errors.New("lost\nnode n2")
}

func TestBarrierFailsWithoutTheOtherNodes(t *testing.T) {
	p := join(t, New(Config{Job: "1.0", Size: 2, Ranks: []int{0}, Exchange: brokenExchange{}}), 0)
	p.ask("cmd=barrier_in", "cmd=barrier_out rc=-1 msg=lost_node_n2")
}

func TestAbortEndsTheStep(t *testing.T) {
	aborts := make(chan string, 4)
	s := New(Config{Job: "1.0", Size: 2, Ranks: []int{0, 1}, Abort: func(rank, code int, message string) {
		aborts <- fmt.Sprint(rank, code, message)
	}})
	a, b := join(t, s, 0), join2(t, s, 1)
	for _, step := range []struct {
		p          *peer
		send, want string
	}{
		{a, "cmd=abort exitcode=7\n", "0 7"},
		{a, "cmd=abort exitcode=seven\n", "0 1"},
		{a, "cmd=abort exitcode=3 message=no more\n", "0 3no more"},
		{b, "    31cmd=abort;isworld=TRUE;msg=bad;", "1 1bad"},
	} {
		step.p.send(step.send)
		if got := <-aborts; got != step.want {
			t.Errorf("%q: got %q, want %q", step.send, got, step.want)
		}
	}
}

func TestRankThatLeavesWithoutFinalizeIsKnown(t *testing.T) {
	s := New(Config{Job: "1.0", Size: 2, Ranks: []int{4, 5}})
	p := join(t, s, 4)
	p.send("cmd=barr")
	p.conn.Close()
	p.ends("nil")
	if initialized, finalized := s.Joined(4); !initialized || finalized {
		t.Errorf("rank 4: %v, %v", initialized, finalized)
	}
	if initialized, _ := s.Joined(5); initialized {
		t.Error("rank 5 never called init")
	}
	if initialized, _ := s.Joined(77); initialized {
		t.Error("rank 77 does not exist")
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s := New(Config{Job: "1.0", Size: 2, Ranks: []int{0, 1}})
	near, far := net.Pipe()
	defer near.Close()
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Serve(ctx, 0, far) }()
	p := &peer{t: t, conn: near, in: bufio.NewReader(near), end: end}
	p.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	p.send("cmd=barrier_in\n")
	cancel()
	p.ends("nil")
}

func TestBadInputEndsOnlyItsConnection(t *testing.T) {
	const init1, init2 = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=init pmi_version=2 pmi_subversion=0\n"
	for name, test := range map[string]struct{ send, want string }{
		"a line without end":      {strings.Repeat("x", 4*maxMessage), "a line of more than 16384 bytes"},
		"a spawn without end":     {init1 + "mcmd=spawn\n" + strings.Repeat("x", 4*maxMessage), "a line of more than 16384 bytes"},
		"no pairs":                {"hello\n", `"hello" is not key=value`},
		"an empty line":           {"\n", "a message without cmd"},
		"no cmd":                  {"a=b\n", "a message without cmd"},
		"a request before init":   {"cmd=barrier_in\n", `"barrier_in" before init`},
		"a length of letters":     {init2 + "12ab34cmd=x;", `"12ab34" is not a length`},
		"a negative length":       {init2 + "    -1cmd=x;", `"    -1" is not a length`},
		"a length that is huge":   {init2 + "999999cmd=x;", "a message of 999999 bytes; the limit is 16384"},
		"a message of length 0":   {init2 + "     0", "a message without cmd"},
		"a counted message":       {init2 + "     5hello", `"hello" is not key=value`},
		"semicolons":              {init2 + "     5;;a=b", `";;a=b" is not key=value`},
		"an end in the middle":    {init2 + "    50cmd=kvs", "nil"},
		"an end after the length": {init2 + "    50", "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := replay{Reader: strings.NewReader(test.send)}
			if got := fmt.Sprint(single().Serve(t.Context(), 0, conn)); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if err := single().Serve(t.Context(), 3, nopConn{}); err == nil || err.Error() != "rank 3 is not on node 0 of the step" {
		t.Error(err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	p := connect(t, single(), 0)
	p.ask("cmd=init pmi_version=9 pmi_subversion=1", "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1")
	p.ask("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	p.ask("cmd=put value=a", "cmd=put_result rc=-1 msg=the_key_is_missing")
	p.ask("cmd=put key="+strings.Repeat("k", 65)+" value=a", "cmd=put_result rc=-1 msg=the_key_is_longer_than_64_bytes")
	p.ask("cmd=put key=k value="+strings.Repeat("v", 1025), "cmd=put_result rc=-1 msg=the_value_is_longer_than_1024_bytes")
	p.ask("cmd=put key=k value=a\x00b", "cmd=put_result rc=-1 msg=the_pair_contains_a_line_end_or_a_NUL_byte")
	p.ask("cmd=dance", "cmd=dance_result rc=-1 msg=not_supported_by_this_server")
	p.ask("cmd=finalize", "cmd=finalize_ack rc=0")
	p.ask("cmd=barrier_in", "cmd=barrier_out rc=-1 msg=init_must_come_first:_this_rank_called_finalize")
}

func TestStoredBytesAreLimited(t *testing.T) {
	p := join(t, single(), 0)
	value := strings.Repeat("v", maxValue)
	n := maxStored / (maxValue + 4)
	for i := range n {
		p.ask(fmt.Sprintf("cmd=put key=%04d value=%s", i, value), "cmd=put_result rc=0")
	}
	p.ask("cmd=put key=last value="+value, fmt.Sprintf("cmd=put_result rc=-1 msg=this_rank_stored_%d_bytes_already", n*(maxValue+4)))
}

func TestMapping(t *testing.T) {
	for want, tasks := range map[string][]int{
		"(vector,(0,2,2))":         {2, 2},
		"(vector,(0,1,3),(1,2,2))": {3, 2, 2},
		"(vector)":                 {},
		"(vector,(0,1,1),(1,1,2))": {1, 2},
		"(vector,(0,1000,8))":      bytesOf(8, 1000),
	} {
		if got := Mapping(tasks); got != want {
			t.Errorf("%v: got %s, want %s", tasks, got, want)
		}
	}
	uneven := make([]int, 200)
	for i := range uneven {
		uneven[i] = i%2 + 1
	}
	if got := Mapping(uneven); got != "" {
		t.Errorf("a mapping of %d bytes", len(got))
	}
}

func bytesOf(value, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = value
	}
	return all
}

// nopConn is a connection that ends at once.
type nopConn struct{}

func (nopConn) Read([]byte) (int, error)    { return 0, io.EOF }
func (nopConn) Write(b []byte) (int, error) { return len(b), nil }
func (nopConn) Close() error                { return nil }

// replay is a connection on which a rank sends bytes and ends.
type replay struct {
	io.Reader
	nopConn
}

func (r replay) Read(b []byte) (int, error) { return r.Reader.Read(b) }

func FuzzServe(f *testing.F) {
	const init1, init2 = "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=init pmi_version=2 pmi_subversion=0\n"
	f.Add([]byte(init1 + "cmd=put kvsname=123.0 key=a value=b c\ncmd=barrier_in\ncmd=get key=a\ncmd=finalize\n"))
	f.Add([]byte(init1 + "mcmd=spawn\nnprocs=2\nendcmd\ncmd=abort exitcode=7\n"))
	f.Add([]byte(init2 + "    24cmd=kvs-put;key=a;value=;14    cmd=kvs-fence;"))
	f.Add([]byte(init2 + "    13cmd=finalize;" + init1 + "cmd=dance\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := single()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // a wait for an attribute that never comes
		defer cancel()
		_ = s.Serve(ctx, 0, replay{Reader: bytes.NewReader(data)})
		if r := s.ranks[0]; r.stored > maxStored {
			t.Errorf("stored %d bytes", r.stored)
		}
	})
}
