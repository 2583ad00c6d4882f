// Package nvml answers the node daemon's requests about GPUs with NVIDIA's library, in a process of
// its own.
//
// It decides which functions the installed driver has and calls no others: an unknown symbol ends
// the process. Package gpu decides what the answers mean. Built without cgo it has no library and
// finds no GPU.
//
// Programs must link it dynamically with lazy binding: with "-z now" a program that refers to the
// library's symbols does not start.
package nvml
