// prefault MB: touches that much memory and ends, so that the pages which a write test is about to get from the kernel
// are already backed by the host. Without it a virtual machine pays seconds of page faults per GB written, whoever writes.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: prefault MB\n");
        return 2;
    }
    size_t bytes = (size_t)atol(argv[1]) << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    return 0;
}
