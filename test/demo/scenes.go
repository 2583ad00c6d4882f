package main

import (
	"fmt"
	"strings"
	"time"
)

// gpu runs a job that lists the devices it can open.
func (s *stage) gpu() {
	s.title("A job with two of four GPUs: which devices can it open?")
	id := s.submit("--wait", "gpu.sh")
	text := s.output("greylag-" + id + ".out")
	if s.c.Containerized() && (strings.Count(text, " opens") != 2 || strings.Count(text, " does not") != 6) {
		s.fail("the job should open two GPUs and no other")
	}
	s.ends(id, "COMPLETED", 0)
}

// array runs an array with a limit of running elements.
func (s *stage) array() {
	s.title("An array of six, three at a time")
	id := s.submit("--wait", "array.sh")
	s.output("greylag-" + id + "_4.out")
	s.run("gqueue", "--states=all", "--array", "--jobs", id)
	s.ends(id+"_6", "COMPLETED", 0)
}

// gang runs a job on all GPUs of both nodes.
func (s *stage) gang() {
	s.title("A gang: all GPUs of two nodes, all or nothing")
	id := s.submit("--wait", "gang.sh")
	first, second := s.output("gang-"+id+"-0.out"), s.output("gang-"+id+"-1.out")
	if !strings.Contains(first, "rank 0 of 2") || !strings.Contains(second, "rank 1 of 2") {
		s.fail("both ranks should have run")
	}
	s.ends(id, "COMPLETED", 0)
}

// planned shows the planned start of a pending job, and what blocks it.
func (s *stage) planned() {
	s.title("A pending job: when it starts, what blocks it, and what would let it start now")
	first := s.submit("--nodes=2", "--gpus-per-node=3", "--time=20", "forever.sh")
	s.await(first, "RUNNING")
	waits := s.submit("--gpus=4", "--nodes=1", "--time=10", "gpu.sh")
	s.promised(waits)
	s.run("gqueue", "--start")
	if text := s.run("gctl", "why", waits); !strings.Contains(text, first) || !strings.Contains(text, "promise") {
		s.fail("gctl why should name job %s and the promise", first)
	}
	s.run("gctl", "plan", "--chart")
	s.run("gcancel", first, waits)
	s.ends(first, "CANCELLED", -1)
}

// image runs a job in an OCI image.
func (s *stage) image() {
	if !s.c.Containerized() {
		return
	}
	s.title("A job in an OCI image")
	if err := writeImage(s.c.Work); err != nil {
		s.fail("write the image: %v", err)
		return
	}
	id := s.submit("--wait", "--image", "oci-archive:"+s.c.Work+"/small.tar", "--mem=32M", "--output", "image-%j.out",
		"--wrap", "cat /etc/greylag-image; id -u; ls /")
	s.run("gctl", "logs", id)
	s.ends(id, "COMPLETED", 0)
}

// limits runs jobs that are killed for time and for memory.
func (s *stage) limits() {
	s.title("A job that exceeds its time limit, and one that exceeds its memory")
	slow := s.submit("--time=0:02", "forever.sh")
	if s.c.Containerized() {
		greedy := s.submit("greedy.sh")
		s.ends(greedy, "OUT_OF_MEMORY", -1)
	}
	s.ends(slow, "TIMEOUT", -1)
}

// cancelled cancels a job, and submits one that is refused.
func (s *stage) cancelled() {
	s.title("A cancelled job, and a refused one")
	id := s.submit("forever.sh")
	s.await(id, "RUNNING")
	s.run("gcancel", id)
	s.ends(id, "CANCELLED", -1)
	s.run("gsubmit", "--gpus-per-node=16", "gpu.sh")
}

// failover kills the leader while a job runs.
func (s *stage) failover() {
	s.title("The leader is killed while a job runs")
	id := s.submit("long.sh")
	s.await(id, "RUNNING")
	leader, err := s.c.Leader(s.ctx)
	if err != nil {
		s.fail("find the leader: %w", err)
		return
	}
	controller := s.c.Controller(leader)
	fmt.Printf("   kill -9 %s, the leader\n", controller.Name)
	if err := controller.Kill(); err != nil {
		s.fail("kill the leader: %w", err)
		return
	}
	begun := time.Now()
	second := s.submit("--wrap", "echo submitted while there was no leader", "--mem=32M")
	fmt.Printf("   acknowledged %s after the kill\n", time.Since(begun).Round(10*time.Millisecond))
	s.ends(second, "COMPLETED", 0)
	s.run("gqueue")
	s.ends(id, "COMPLETED", 0)
	s.run("gctl", "cluster", "status")
}
