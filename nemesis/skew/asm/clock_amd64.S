# What the symbols of a skewed process's vDSO point at: linux/amd64, position
# independent, one page. `go generate` in the folder above turns it into
# code_linux_amd64.go; a test there assembles it again and compares.
#
# The launcher fills in the first words. The control page, mapped read-only:
#
#	  0	magic
#	  8	generation
#	 64	32 slots of 64 bytes; the one in force is generation mod 32
#
# and a slot, once for the realtime clocks and at +32 for the monotonic ones:
#
#	  0	base: an instant of the real clock, ns
#	  8	offset at the base, ns
#	 16	rate before the base, 32.32 fixed point, signed
#	 24	rate from the base on
#
# With d = real - base, the process reads real + offset + d * rate.

	.text

wordControl:		.quad	0	# address of the control page
wordClockGettime:	.quad	0	# the kernel's own functions in the vDSO
wordGettimeofday:	.quad	0

	.balign	64
# int clock_gettime(clockid_t %edi, struct timespec *%rsi)
entryClockGettime:
	endbr64
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx			# four pushes more keep the stack aligned
	push	%r12
	push	%r13
	push	%r14
	mov	%edi, %ebx
	mov	%rsi, %r12
	mov	wordControl(%rip), %r13
again:
	# The generation comes first: if it is still the same after the slot was
	# read, clock and slot belong together. A slot that was reused meanwhile, or
	# a clock read before a step and corrected as after it, would be a torn time.
	mov	8(%r13), %r14
	mov	%ebx, %edi
	mov	%r12, %rsi
	call	*wordClockGettime(%rip)
	test	%eax, %eax
	jnz	done			# an error is handed on as it is
	cmp	$11, %ebx		# unsigned: CPU clocks of processes are negative
	ja	done
	mov	$0x921, %ecx		# REALTIME 0, _COARSE 5, _ALARM 8, TAI 11
	xor	%edx, %edx
	bt	%ebx, %ecx
	jc	skewed
	mov	$0x2d2, %ecx		# MONOTONIC 1, _RAW 4, _COARSE 6, BOOTTIME 7, _ALARM 9
	mov	$32, %edx
	bt	%ebx, %ecx
	jnc	done			# the CPU clocks 2 and 3, and 10, which is none
skewed:
	mov	%r14d, %ecx
	and	$31, %ecx
	shl	$6, %ecx
	add	%edx, %ecx
	lea	64(%r13,%rcx), %rcx
	mov	(%rcx), %r8		# base
	mov	8(%rcx), %r9		# offset
	mov	16(%rcx), %r10		# rate before
	mov	24(%rcx), %r11		# rate after
	cmp	8(%r13), %r14
	jne	again
	mov	%r9, %rax
	or	%r10, %rax
	or	%r11, %rax
	jz	done			# no skew, and %eax is 0
	imul	$1000000000, (%r12), %rsi
	add	8(%r12), %rsi		# real, ns
	mov	%rsi, %rax
	sub	%r8, %rax
	cmovl	%r10, %r11
	imul	%r11			# 128 bits, of which 64 above the point are kept
	shrd	$32, %rdx, %rax
	add	%r9, %rax
	add	%rsi, %rax
	cqto
	not	%rdx
	and	%rdx, %rax		# never before the epoch
	xor	%edx, %edx
	mov	$1000000000, %ecx
	div	%rcx
	mov	%rax, (%r12)
	mov	%rdx, 8(%r12)
	xor	%eax, %eax
done:
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	pop	%rbp
	ret

	.balign	64
# int gettimeofday(struct timeval *%rdi, struct timezone *%rsi)
entryGettimeofday:
	endbr64
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx
	sub	$24, %rsp
	mov	%rdi, %rbx
	test	%rsi, %rsi
	jz	1f
	xor	%edi, %edi		# the time zone is the kernel's business
	call	*wordGettimeofday(%rip)
	test	%eax, %eax
	jnz	2f
1:	xor	%eax, %eax
	test	%rbx, %rbx
	jz	2f
	xor	%edi, %edi		# CLOCK_REALTIME
	mov	%rsp, %rsi
	call	entryClockGettime
	test	%eax, %eax
	jnz	2f
	mov	(%rsp), %rax
	mov	%rax, (%rbx)
	mov	8(%rsp), %rax
	xor	%edx, %edx
	mov	$1000, %ecx
	div	%rcx
	mov	%rax, 8(%rbx)
	xor	%eax, %eax
2:	add	$24, %rsp
	pop	%rbx
	pop	%rbp
	ret

	.balign	64
# time_t time(time_t *%rdi)
entryTime:
	endbr64
	push	%rbp
	mov	%rsp, %rbp
	push	%rbx
	sub	$24, %rsp
	mov	%rdi, %rbx
	mov	$5, %edi		# CLOCK_REALTIME_COARSE, as the kernel's time does
	mov	%rsp, %rsi
	call	entryClockGettime
	test	%eax, %eax
	jnz	2f			# does not happen
	mov	(%rsp), %rax
	test	%rbx, %rbx
	jz	2f
	mov	%rax, (%rbx)
2:	add	$24, %rsp
	pop	%rbx
	pop	%rbp
	ret

# Where the functions return to in the self-test.
trap:
	int3
	.balign	8
