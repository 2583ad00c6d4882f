// Package nvml answers, in a process of its own, what the node daemon asks about
// GPUs, through NVIDIA's library.
//
// It decides which of the library's calls the installed driver has, and makes
// no other: an unknown symbol ends the process. It decides nothing about what
// the answers mean; package gpu does. Built without cgo it knows of no library
// and says so by finding no GPU.
//
// It must be linked dynamically and bound lazily: with "-z now" a program that
// refers to the library's symbols does not start.
package nvml
