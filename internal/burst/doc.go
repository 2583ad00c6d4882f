// Package burst is the contract between the controller and the programs that rent nodes from a cloud, and runs these
// programs.
//
// A provider program is called with one word, gets one JSON object on standard input, and writes one on standard output.
// The calls and their objects are the types of this package; docs/burst-provider.md describes them for authors. The
// package never decides what is rented or ended, and never knows a cloud.
package burst
